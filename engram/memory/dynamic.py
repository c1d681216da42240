"""The dynamic memory of SSD: each class claims slots for its summary, the rest is a reservoir (Gu et al., 2024)."""

from __future__ import annotations

import logging
import math
from collections import Counter

import torch
from torch import Tensor

from engram.core import Batch, Context, Policy, StoreReport
from engram.memory.reservoir import draw_priority, draw_reservoir_slots
from engram.memory.store import Store

_log = logging.getLogger(__name__)


class Dynamic(Policy):
    """The first k images of a class claim a slot each; other images pass a reservoir over the unclaimed slots.

    A claim takes the next free slot, or a uniformly drawn unclaimed one. Where every slot is claimed it takes one of
    the class that owns most, as long as that class keeps at least as many as the claimant gets: so every class has a
    slot while K ≥ classes seen. Where bytes are the limit, unclaimed images of the lowest priority go first, and then
    as many of the classes that own most as it takes.
    """

    needs = frozenset({"replay"})
    provides = frozenset({"claims"})
    _told_of_too_many = False

    def store(self, stream: Batch, ctx: Context) -> StoreReport:
        memory, report = ctx.memory, StoreReport()
        before = memory.stored
        drawn = draw_reservoir_slots(len(stream), memory, ctx.rng["memory"]) if memory.budget is None else []
        owned = Counter(memory.labels[memory.claimed].tolist())
        reservoir: list[int] = []
        for position, label in enumerate(stream.y.tolist()):
            if owned[label] < ctx.slots_per_class and self._claim(stream.x[position], label, owned, ctx):
                owned[label] += 1
                continue
            reservoir.append(position)
            if not owned[label] and not self._told_of_too_many:
                self._told_of_too_many = True
                _log.warning("no room for a class: %d own the memory. Give it more", len(+owned))
        for position in reservoir:
            image, label = stream.x[position], int(stream.y[position])
            if memory.budget is not None:
                memory.put(memory.size, image, label, draw_priority(memory, ctx.rng["memory"]))
                continue
            slot = memory.size if memory.free else drawn[position]
            if slot < memory.capacity and not memory.claimed[slot]:
                memory.put(slot, image, label)
        report.stored = memory.stored_since(before)
        report.claimed = [slot for slot in report.stored if memory.claimed[slot]]
        memory.seen += len(stream)
        return report

    def _claim(self, image: Tensor, label: int, owned: Counter[int], ctx: Context) -> bool:
        """Store the image in a slot its class owns from now on, if there is one to be had."""
        memory = ctx.memory
        if memory.budget is None:
            slot = self._slot_to_claim(label, owned, ctx)
        elif self._give_up(memory.missing_bytes(image), label, owned, memory):
            slot = memory.size
        else:
            slot = None
        slot = None if slot is None else memory.put(slot, image, label, priority=math.inf)
        if slot is None:
            return False
        memory.claim(slot)
        return True

    def _slot_to_claim(self, label: int, owned: Counter[int], ctx: Context) -> int | None:
        memory = ctx.memory
        if memory.free:
            return memory.size
        unclaimed = memory.unclaimed()
        if len(unclaimed):
            return int(unclaimed[torch.randint(len(unclaimed), (1,), generator=ctx.rng["memory"])])
        richest = _richest(owned)
        if owned[richest] < owned[label] + 2:
            return None
        slot = int(memory.claimed_by(richest)[-1])
        memory.release(slot)
        owned[richest] -= 1
        return slot

    def _give_up(self, missing: int, label: int, owned: Counter[int], memory: Store) -> bool:
        """Remove so many bytes of claimed images, each time of the class that owns most; or nothing, where that would
        leave a class less than the claimant gets."""
        left, going = owned.copy(), []
        while missing > 0:
            richest = _richest(left) if left else label
            if left[richest] < owned[label] + 2:
                return False
            slot = int(memory.claimed_by(richest)[left[richest] - 1])
            going.append(int(memory.ids[slot]))
            missing -= len(memory.records[slot])
            left[richest] -= 1
        for identity in going:
            memory.remove(memory.slot_of(identity))
        owned.clear()
        owned.update(left)
        return True


def _richest(owned: Counter[int]) -> int:
    """The class that owns most slots, the latest of several."""
    return max(owned, key=lambda owner: (owned[owner], owner))
