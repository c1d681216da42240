"""The dynamic memory of SSD: each class claims slots for its summary, the rest is a reservoir (Gu et al., 2024)."""

from __future__ import annotations

from collections import Counter

import torch

from engram.core import Batch, Context, Policy, StoreReport
from engram.memory.reservoir import draw_reservoir_slots


class Dynamic(Policy):
    """The first k images of a class claim a slot each; other images pass a reservoir over the unclaimed slots.

    A claim takes the next free slot, or a uniformly drawn unclaimed one. Where every slot is claimed it takes one of
    the class that owns most, as long as that class keeps at least as many as the claimant gets: so every class has a
    slot while K ≥ classes seen.
    """

    needs = frozenset({"replay"})
    provides = frozenset({"claims"})

    def store(self, stream: Batch, ctx: Context) -> StoreReport:
        memory, report = ctx.memory, StoreReport()
        drawn = draw_reservoir_slots(len(stream), memory, ctx.rng["memory"])
        owned = Counter(memory.labels[memory.claimed].tolist())
        reservoir: list[int] = []
        for position, label in enumerate(stream.y.tolist()):
            slot = self._slot_to_claim(label, owned, report, ctx) if owned[label] < ctx.slots_per_class else None
            if slot is None:
                reservoir.append(position)
                continue
            memory.put(slot, stream.x[position], label)
            memory.claim(slot)
            owned[label] += 1
            report.stored.append(slot)
            report.claimed.append(slot)
        for position in reservoir:
            slot = memory.size if memory.free else drawn[position]
            if slot < memory.capacity and not memory.claimed[slot]:
                memory.put(slot, stream.x[position], int(stream.y[position]))
                report.stored.append(slot)
        memory.seen += len(stream)
        return report

    def _slot_to_claim(self, label: int, owned: Counter[int], report: StoreReport, ctx: Context) -> int | None:
        memory = ctx.memory
        if memory.free:
            return memory.size
        unclaimed = memory.unclaimed()
        if len(unclaimed):
            return int(unclaimed[torch.randint(len(unclaimed), (1,), generator=ctx.rng["memory"])])
        richest = max(owned, key=lambda owner: (owned[owner], owner))
        if owned[richest] < owned[label] + 2:
            return None
        slot = int(memory.claimed_by(richest)[-1])
        memory.release(slot)
        owned[richest] -= 1
        report.released.append(slot)
        return slot
