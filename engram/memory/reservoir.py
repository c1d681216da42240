"""Reservoir sampling (Vitter, 1985; Chaudhry et al., 2019)."""

from __future__ import annotations

import torch

from engram.core import Batch, Context, Policy, StoreReport


def draw_reservoir_slots(count: int, seen: int, generator: torch.Generator) -> list[int]:
    """One index for each of `count` images, uniform in [0, seen): it replaces that slot if the memory has it."""
    return torch.randint(0, max(seen, 1), (count,), generator=generator).tolist()


class Reservoir(Policy):
    """Fills free slots, then stores each image with probability K / seen in a uniformly drawn slot.

    `seen` counts the images before this batch, as published: every image after the first K is kept with the same
    probability, the first K with (K-1)/K of it.
    """

    def store(self, stream: Batch, ctx: Context) -> StoreReport:
        memory, report = ctx.memory, StoreReport()
        drawn = draw_reservoir_slots(len(stream), memory.seen, ctx.rng["memory"])
        for image, label, index in zip(stream.x, stream.y.tolist(), drawn, strict=True):
            slot = memory.size if memory.free else index
            if slot < memory.capacity:
                memory.put(slot, image, label)
                report.stored.append(slot)
        memory.seen += len(stream)
        return report
