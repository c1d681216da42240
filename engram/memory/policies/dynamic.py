"""The dynamic memory of SSD: each class claims slots for its summary, the rest is a reservoir (Gu et al., 2024)."""

from __future__ import annotations

import logging
import math
from collections import Counter
from types import MappingProxyType

from engram.base.batch import Batch
from engram.base.context import MemoryContext
from engram.base.interfaces import MemoryPolicy, StoreReport

_log = logging.getLogger(__name__)


class Dynamic(MemoryPolicy):
    """The first k images of a class claim a slot each; other images pass a reservoir over the unclaimed slots.

    A claim takes the next free slot, or a uniformly drawn unclaimed one. Where every slot is claimed it takes one of
    the class that owns most, as long as that class keeps at least as many as the claimant gets: so every class has a
    slot while K ≥ classes seen. Where bytes are the limit, unclaimed images of the lowest priority leave first, and
    then as many of the classes that own most as needed.

    Args:
        count_before_batch: when a batch fills the last free slots, let its other images replace only images of earlier
            batches, as published. If not given: only on the paper's streams. Elsewhere they may replace any unclaimed
            image, so that a batch larger than the memory is stored fairly.
    """

    published = MappingProxyType({"count_before_batch": True})

    needs = frozenset({"replay"})
    provides = frozenset({"claims"})
    _warned_of_classes = False

    def __init__(self, count_before_batch: bool | None = None) -> None:
        self.count_before_batch = count_before_batch

    def store(self, stream: Batch, ctx: MemoryContext) -> StoreReport:
        memory, before = ctx.memory, ctx.memory.stored
        below = max(memory.seen, 1 if self.count_before_batch else memory.capacity)
        admission = memory.limit.admission(memory, len(stream), below, ctx.rng["memory"])
        owned = Counter(memory.labels[memory.claimed].tolist())
        unclaimed: list[int] = []
        labels = stream.y.tolist()
        for position, label in enumerate(labels):
            if owned[label] < ctx.slots_per_class and self._claim(stream, position, owned, ctx):
                owned[label] += 1
                continue
            unclaimed.append(position)
            if not owned[label] and not self._warned_of_classes:
                self._warned_of_classes = True
                _log.warning("no room for a class: %d own the memory. Give it more", len(+owned))
        for position in unclaimed:
            if (slot := admission.slot(position)) is not None:
                memory.put(slot, stream, position, admission.priority())
        stored = memory.stored_since(before)
        memory.seen += len(stream)
        return StoreReport(stored, [slot for slot in stored if memory.claimed[slot]])

    def _claim(self, stream: Batch, position: int, owned: Counter[int], ctx: MemoryContext) -> bool:
        """Store the image in a slot that its class owns from now on; return whether there was one."""
        memory, label = ctx.memory, int(stream.y[position])
        record = memory.record_of(stream, position)
        slot = memory.limit.slot_to_claim(memory, len(record), label, owned, ctx.rng["memory"])
        stored = None if slot is None else memory.put_record(slot, record, label, priority=math.inf)
        if stored is None:
            return False
        memory.claim(stored)
        return True
