"""ASER's memory: some memory images and the stream batch compete, and those stay that help most to tell classes apart
(Shim et al., 2021, the mean variant).
"""

from __future__ import annotations

import torch
from torch import Tensor

from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.interfaces import Policy, StoreReport
from engram.base.knn_shapley import knn_shapley, sample_per_class
from engram.base.settings import Count, Positive


class ShapleyMemory(Policy):
    """Fills free slots; then images compete by the sum of their KNN-Shapley values over an evaluation set.

    The evaluation set holds a few memory images of each class, and the stream images of classes that are rare in
    memory: their share is below a threshold that is drawn each time. Memory images outside the set and the whole
    stream batch are candidates. Stream images that are kept take the slots of memory images that are dropped. If the
    evaluation set leaves no candidate, the memory is a reservoir.

    Args:
        per_class: number of evaluation images, and mean number of candidates, per class (3 on Mini-ImageNet).
        neighbors: number of neighbors that vote (K).
    """

    needs = frozenset({"replay"})

    def __init__(self, per_class: Positive = 2, neighbors: Count = 3) -> None:
        self.per_class, self.neighbors = per_class, neighbors

    def store(self, stream: Batch, ctx: StepContext) -> StoreReport:
        memory, report = ctx.memory, StoreReport()
        before = memory.stored
        fitting = min(memory.free, len(stream))
        for position in range(fitting):
            memory.put(memory.size, stream, position, memory.limit.draw_priority(ctx.rng["memory"]))
        rest = torch.arange(fitting, len(stream))
        if len(rest):
            self._compete(stream[rest], ctx)
        report.stored = memory.stored_since(before)
        memory.seen += len(stream)
        return report

    def _compete(self, stream: Batch, ctx: StepContext) -> None:
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
            self._features(candidates, ctx), candidates.y, self._features(points, ctx), points.y, self.neighbors
        ).sum(0)
        kept = torch.zeros(len(candidates), dtype=torch.bool)
        kept[values.topk(len(slots)).indices.cpu()] = True
        dropped = memory.ids[slots[~kept[: len(slots)]]].tolist()
        arriving = kept[len(slots) :].nonzero().flatten().tolist()
        for identity, position in zip(dropped, arriving, strict=True):
            slot = memory.slot_of(identity) if identity in memory.ids else memory.size
            if memory.limit.has_slot(slot):
                memory.put(slot, stream, position, memory.limit.draw_priority(generator))

    def _store_at_random(self, stream: Batch, ctx: StepContext) -> None:
        """Store the batch as a reservoir does."""
        memory, generator = ctx.memory, ctx.rng["memory"]
        drawn = torch.randint(max(memory.seen, memory.capacity), (len(stream),), generator=generator).tolist()
        for position, slot in enumerate(drawn):
            if slot < memory.size:
                memory.put(slot, stream, position, memory.limit.draw_priority(generator))

    def _features(self, batch: Batch, ctx: StepContext) -> Tensor:
        with ctx.model.evaluating():
            return ctx.model.features(batch.x)
