"""How latents become bytes: in 8 bits with a scale per channel that the whole memory shares, or in 16 bits.

    q = round((x − low) / step),  x ≈ low + q · step,  step = (high − low) / 255        for each channel

The scale begins at zero. When a value lies beyond it, it grows to hold that value and a quarter more, and everything in
memory is encoded anew, so that a channel's scale changes a few times in its life and not with every batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from engram.base.part import Part

STEPS = 255
ROOM = 0.25
"""What a scale grows beyond the values it must hold, as a share of their span."""
LARGEST_HALF = 65504.0
"""Largest number of 16 bits."""


class Latent8(Part):
    """Stores one byte per value, on a scale for each channel."""

    name = "latent8"

    def __init__(self) -> None:
        self.add_state("low", torch.zeros(1), on_cpu=True)
        self.add_state("high", torch.zeros(1), on_cpu=True)
        self.low: Tensor
        """Smallest value of each channel that can be told."""
        self.high: Tensor
        """Largest value of each channel that can be told."""

    def begin(self, channels: int) -> None:
        """Begin with an empty scale for each channel."""
        self.low, self.high = torch.zeros(channels), torch.zeros(channels)

    def shared_bytes(self, shape: tuple[int, int, int]) -> int:
        """Return the bytes of the scale."""
        return 2 * shape[0] * torch.float32.itemsize

    def record_bytes(self, shape: tuple[int, int, int]) -> int | None:
        return math.prod(shape)

    def holds(self, latents: Tensor) -> bool:
        """Return whether all values lie on the scale."""
        least, most = _range(latents)
        return bool((least >= self.low).all() and (most <= self.high).all())

    def grow(self, latents: Tensor) -> None:
        """Let the scale hold these values. What was encoded before means something else then."""
        least, most = _range(latents)
        low, high = torch.minimum(least, self.low), torch.maximum(most, self.high)
        room = ROOM * (high - low)
        self.low = torch.where(least < self.low, low - room, self.low)
        self.high = torch.where(most > self.high, high + room, self.high)

    def grown(self, records: Sequence[Tensor], shape: tuple[int, int, int], latents: Tensor) -> list[Tensor]:
        """Let the scale hold these latents too, and return the records that are there on the new scale."""
        held = self.decode(records, shape) if records else latents[:0]
        self.grow(latents)
        return self.encode(held)

    def encode(self, images: Tensor) -> list[Tensor]:
        values = images.detach().float().cpu()
        low, step = self._scale()
        counts = ((values - low) / step.clamp_min(torch.finfo().tiny)).round().clamp(0, STEPS).to(torch.uint8)
        return [record.reshape(-1).clone() for record in counts]

    def decode(self, records: Sequence[Tensor], shape: tuple[int, int, int]) -> Tensor:
        low, step = self._scale()
        return torch.stack(list(records)).view(-1, *shape).float().mul_(step).add_(low)

    def _scale(self) -> tuple[Tensor, Tensor]:
        return self.low.view(-1, 1, 1), ((self.high - self.low) / STEPS).view(-1, 1, 1)


class Latent16:
    """Stores two bytes per value: a floating-point number of 16 bits."""

    name = "latent16"

    def record_bytes(self, shape: tuple[int, int, int]) -> int | None:
        return 2 * math.prod(shape)

    def encode(self, images: Tensor) -> list[Tensor]:
        halves = images.detach().float().cpu().clamp(-LARGEST_HALF, LARGEST_HALF).half().contiguous()
        return [half.view(-1).view(torch.uint8).clone() for half in halves]

    def decode(self, records: Sequence[Tensor], shape: tuple[int, int, int]) -> Tensor:
        return torch.stack(list(records)).view(torch.float16).view(-1, *shape).float()


def _range(latents: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest value of each channel."""
    values = latents.detach().float().cpu()
    return values.amin((0, 2, 3)), values.amax((0, 2, 3))
