"""Reservoir sampling (Vitter, 1985; Chaudhry et al., 2019)."""

from __future__ import annotations

from engram.base.batch import Batch
from engram.base.context import MemoryContext
from engram.base.interfaces import MemoryPolicy, StoreReport


class Reservoir(MemoryPolicy):
    """Fills free slots, then stores each image with probability K / n in a uniformly drawn slot.

    n counts the images before this batch, as published, those that fill the last free slots included. So every batch
    after the first K images is kept alike, and the first K a little less: with batches of b, about 1 − b/K of it.
    Where bytes are the limit, every image draws a priority, and the images of the highest priority that fit stay.
    """

    def store(self, stream: Batch, ctx: MemoryContext) -> StoreReport:
        memory, before = ctx.memory, ctx.memory.stored
        below = max(memory.seen, memory.capacity)
        admission = memory.limit.admission(memory, len(stream), below, ctx.rng["memory"])
        for position in range(len(stream)):
            if (slot := admission.slot(position)) is not None:
                memory.put(slot, stream, position, admission.priority())
        memory.seen += len(stream)
        return StoreReport(stored=memory.stored_since(before))
