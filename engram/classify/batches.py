"""How many images go through the net at once where no gradient is needed."""

from __future__ import annotations

from torch import Tensor

EVALUATION_BATCH = 128


def in_batches(x: Tensor) -> tuple[Tensor, ...]:
    parts: tuple[Tensor, ...] = x.split(EVALUATION_BATCH)
    return parts
