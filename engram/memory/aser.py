"""ASER's memory: of some memory images and the stream batch, those that help most to tell the classes apart stay
(Shim et al., 2021, the mean variant).
"""

from __future__ import annotations

import torch
from torch import Tensor

from engram.core import Batch, Context, Policy, StoreReport
from engram.knn_shapley import knn_shapley, sample_per_class
from engram.memory.reservoir import draw_priority, draw_reservoir_slots


class ShapleyMemory(Policy):
    """Fills free slots; then images compete by the sum of their KNN-Shapley values over an evaluation set.

    The set is a few memory images of each class and the stream images of classes rare in memory: those whose share is
    below a threshold, drawn each time, of at most one class's share. Memory images outside it, and the whole stream
    batch, are candidates; kept stream images take the slots of dropped memory images. Where the evaluation set leaves
    no candidate, it is a reservoir.

    Args:
        per_class: evaluation images, and mean number of candidates, of each class (3 on Mini-ImageNet).
        neighbours: K of the vote.
    """

    needs = frozenset({"replay"})

    def __init__(self, per_class: float = 2, neighbours: int = 3) -> None:
        self.per_class, self.neighbours = per_class, neighbours

    def store(self, stream: Batch, ctx: Context) -> StoreReport:
        memory, report = ctx.memory, StoreReport()
        before = memory.stored
        fitting = min(memory.free, len(stream))
        for image, label in zip(stream.x[:fitting], stream.y[:fitting].tolist(), strict=True):
            memory.put(memory.size, image, label, draw_priority(memory, ctx.rng["memory"]))
        rest = torch.arange(fitting, len(stream))
        if len(rest):
            self._compete(stream[rest], ctx)
        report.stored = memory.stored_since(before)
        memory.seen += len(stream)
        return report

    def _compete(self, stream: Batch, ctx: Context) -> None:
        memory, generator = ctx.memory, ctx.rng["memory"]
        labels = memory.labels[: memory.size]
        evaluation = sample_per_class(labels, int(self.per_class), generator)
        outside = memory.filled()[~torch.isin(memory.filled(), evaluation)]
        wanted = int(self.per_class * ctx.classes_total)
        slots = outside[torch.randperm(len(outside), generator=generator)[:wanted]]
        if not len(slots):
            self._store_at_random(stream, ctx)
            return
        threshold = float(torch.rand(1, generator=generator)) / ctx.classes_total
        share = labels.bincount(minlength=ctx.classes) / memory.capacity
        rare = (share[stream.y.cpu()] < threshold).nonzero().flatten()
        points = Batch.join(memory.read(evaluation), stream[rare])
        candidates = Batch.join(memory.read(slots), stream)
        values = knn_shapley(
            self._features(candidates, ctx), candidates.y, self._features(points, ctx), points.y, self.neighbours
        ).sum(0)
        kept = torch.zeros(len(candidates), dtype=torch.bool)
        kept[values.topk(len(slots)).indices.cpu()] = True
        dropped = memory.ids[slots[~kept[: len(slots)]]].tolist()
        arriving = kept[len(slots) :].nonzero().flatten().tolist()
        for identity, position in zip(dropped, arriving, strict=True):
            slot = memory.slot_of(identity) if identity in memory.ids else memory.size
            if slot != memory.limit:
                priority = draw_priority(memory, generator)
                memory.put(slot, stream.x[position], int(stream.y[position]), priority)

    def _store_at_random(self, stream: Batch, ctx: Context) -> None:
        """A memory too small to have candidates outside the evaluation set is a reservoir."""
        memory, generator = ctx.memory, ctx.rng["memory"]
        drawn = draw_reservoir_slots(len(stream), memory, generator)
        for image, label, slot in zip(stream.x, stream.y.tolist(), drawn, strict=True):
            if slot < memory.size:
                memory.put(slot, image, label, draw_priority(memory, generator))

    def _features(self, batch: Batch, ctx: Context) -> Tensor:
        with ctx.model.evaluating():
            return ctx.model.features(batch.x)
