"""The size of batches for which no gradient is needed."""

from __future__ import annotations

from torch import Tensor

EVALUATION_BATCH = 128


def in_batches(x: Tensor) -> tuple[Tensor, ...]:
    """Return a tensor split into batches along its first dimension."""
    parts: tuple[Tensor, ...] = x.split(EVALUATION_BATCH)
    return parts
