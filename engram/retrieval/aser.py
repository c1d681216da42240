"""ASER's retrieval: memory images that represent their own class well and conflict with the stream
(Shim et al., 2021, the mean variant).

value(x) = mean of its KNN-Shapley values over a cooperative set from memory − mean over the stream batch
"""

from __future__ import annotations

import torch
from torch import Tensor

from engram.base.batch import Batch, choose
from engram.base.context import StepContext
from engram.base.interfaces import Retrieval
from engram.base.knn_shapley import knn_shapley, sample_per_class
from engram.base.settings import Count


class ShapleyRetrieval(Retrieval):
    """Chooses the images of the highest value.

    It chooses at random until more images were seen than the memory holds, and if no image is left for the cooperative
    set.

    Args:
        per_class: number of candidates, and of cooperative images, drawn per class (3 on Mini-ImageNet).
        neighbors: number of neighbors that vote (K).
    """

    def __init__(self, per_class: Count = 2, neighbors: Count = 3) -> None:
        self.per_class, self.neighbors = per_class, neighbors

    def select(self, stream: Batch, count: int, ctx: StepContext) -> Tensor:
        memory, generator = ctx.memory, ctx.rng["replay"]
        candidates = sample_per_class(memory.labels[: memory.size], self.per_class, generator)
        rest = memory.filled()[~torch.isin(memory.filled(), candidates)]
        cooperative = rest[sample_per_class(memory.labels[rest], self.per_class, generator)]
        if memory.seen <= memory.capacity or not len(cooperative):
            return choose(count, memory.size, generator)
        batch = memory.read(candidates)
        features = self._features(batch, ctx)
        for_own_class = self._values(features, batch, memory.read(cooperative), ctx).mean(0)
        against_stream = self._values(features, batch, stream, ctx).mean(0)
        value = for_own_class - against_stream
        return candidates[value.topk(min(count, len(candidates))).indices.cpu()]

    def _values(self, features: Tensor, candidates: Batch, points: Batch, ctx: StepContext) -> Tensor:
        return knn_shapley(features, candidates.y, self._features(points, ctx), points.y, self.neighbors)

    def _features(self, batch: Batch, ctx: StepContext) -> Tensor:
        with ctx.model.evaluating():
            return ctx.model.features(batch.x)
