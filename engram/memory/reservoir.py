"""Reservoir sampling (Vitter, 1985; Chaudhry et al., 2019)."""

from __future__ import annotations

import torch

from engram.core import Batch, Context, Policy, StoreReport
from engram.memory.store import Store


def draw_reservoir_slots(count: int, memory: Store, generator: torch.Generator) -> list[int]:
    """One index for each of `count` images, uniform in [0, n): it replaces that slot if the memory has it.

    n is the number of images seen before them, those of the same batch that filled the last free slots included.
    """
    return torch.randint(0, max(memory.seen, memory.capacity), (count,), generator=generator).tolist()


def draw_priority(memory: Store, generator: torch.Generator, least: float = 0.0) -> float:
    """Of an image that is stored by chance: where bytes are the limit, a uniform draw decides who stays. One that has
    stayed already is known to have drawn at least so much."""
    return 1.0 if memory.budget is None else least + (1 - least) * float(torch.rand(1, generator=generator))


class Reservoir(Policy):
    """Fills free slots, then stores each image with probability K / n in a uniformly drawn slot.

    n counts the images before this batch, as published. So every batch after the first K images is kept alike, and the
    first K a little less: with batches of b, about 1 − b/K of it. Where bytes are the limit, every image draws a
    priority, and those of the highest stay that fit.
    """

    def store(self, stream: Batch, ctx: Context) -> StoreReport:
        memory, generator, report = ctx.memory, ctx.rng["memory"], StoreReport()
        if memory.budget is not None:
            before = memory.stored
            for image, label in zip(stream.x, stream.y.tolist(), strict=True):
                memory.put(memory.size, image, label, draw_priority(memory, generator))
            report.stored = memory.stored_since(before)
        else:
            drawn = draw_reservoir_slots(len(stream), memory, generator)
            for image, label, index in zip(stream.x, stream.y.tolist(), drawn, strict=True):
                slot = memory.size if memory.free else index
                if slot < memory.capacity:
                    memory.put(slot, image, label)
                    report.stored.append(slot)
        memory.seen += len(stream)
        return report
