"""ASER's retrieval: memory images that stand for their own class and stand against the stream's
(Shim et al., 2021, the mean variant).

value(x) = mean of its KNN-Shapley values over a cooperative set from memory − mean over the stream batch
"""

from __future__ import annotations

import torch
from torch import Tensor

from engram.core import Batch, Context, Retrieval, choose
from engram.knn_shapley import knn_shapley, sample_per_class


class ShapleyRetrieval(Retrieval):
    """Random until more images were seen than the memory holds, and where no image is left for the cooperative set.

    Args:
        per_class: candidates, and cooperative images, drawn of each class (3 on Mini-ImageNet).
        neighbours: K of the vote.
    """

    def __init__(self, per_class: int = 2, neighbours: int = 3) -> None:
        self.per_class, self.neighbours = per_class, neighbours

    def select(self, stream: Batch, count: int, ctx: Context) -> Tensor:
        memory, generator = ctx.memory, ctx.rng["replay"]
        candidates = sample_per_class(memory.labels[: memory.size], self.per_class, generator)
        rest = memory.filled()[~torch.isin(memory.filled(), candidates)]
        cooperative = rest[sample_per_class(memory.labels[rest], self.per_class, generator)]
        if memory.seen <= memory.capacity or not len(cooperative):
            return choose(count, memory.size, generator)
        batch = memory.read(candidates)
        features = self._features(batch, ctx)
        standing_for = self._values(features, batch, memory.read(cooperative), ctx).mean(0)
        standing_against = self._values(features, batch, stream, ctx).mean(0)
        value = standing_for - standing_against
        return candidates[value.topk(min(count, len(candidates))).indices.cpu()]

    def _values(self, features: Tensor, candidates: Batch, points: Batch, ctx: Context) -> Tensor:
        return knn_shapley(features, candidates.y, self._features(points, ctx), points.y, self.neighbours)

    def _features(self, batch: Batch, ctx: Context) -> Tensor:
        with ctx.model.evaluating():
            return ctx.model.features(batch.x)
