"""A batch of images and labels, and the two small operations every part needs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Batch:
    """Images and their class indices.

    Args:
        x: images (N,C,H,W); float32 in [0,1] when they come from a stream.
        y: class indices, numbered in order of first arrival.
        raw: the same pixels as uint8 if they arrived as uint8; keeping these takes a quarter of the bytes.
        logits: logits (N,classes) that the memory is to keep or has kept, if it keeps any; NaN where there are none.
    """

    x: Tensor
    y: Tensor
    raw: Tensor | None = None
    logits: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: Tensor) -> Batch:
        raw, logits = (
            None if values is None else values[index.to(values.device)] for values in (self.raw, self.logits)
        )
        return Batch(self.x[index], self.y[index], raw, logits)

    @staticmethod
    def join(*batches: Batch | None) -> Batch:
        """Return one batch of all images and labels, in this order; None stands for no images."""
        present = [batch for batch in batches if batch is not None]
        return Batch(torch.cat([batch.x for batch in present]), torch.cat([batch.y for batch in present]))


def as_float(pixels: Tensor) -> Tensor:
    """Return pixels in [0,1], given 8-bit values or floats."""
    return pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels


def choose(count: int, of: int, generator: torch.Generator) -> Tensor:
    """Return `count` distinct indices of range(of), drawn uniformly; all of them, shuffled, if there are fewer."""
    return torch.randperm(of, generator=generator)[:count]
