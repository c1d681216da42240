"""Nearest class mean: the class whose mean feature over the memory has the largest cosine with the image's feature."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.base.context import StepContext
from engram.base.errors import NotReadyError
from engram.base.heads import ClassMeans, GrowingHead
from engram.base.interfaces import Classifier
from engram.base.model import Model
from engram.classifiers.features import answering_features, in_batches


class NearestClassMean(Classifier):
    """Scores images by their cosines with the class means. A class without an image in memory cannot be predicted.

    Args:
        mirror: use the mean of an image's features and those of its mirror image, which takes twice as long. It helps
            where left and right mean nothing.
    """

    def __init__(self, mirror: bool = False) -> None:
        self.mirror = mirror
        self._kept: tuple[tuple[Model, int, int, int], Tensor] | None = None

    def scores(self, x: Tensor, ctx: StepContext) -> Tensor:
        features = F.normalize(answering_features(x, ctx.model, self.mirror), dim=1)
        means = self.class_means(ctx)
        absent = means.isnan().any(1)
        return (features @ means.nan_to_num().T).masked_fill(absent, -torch.inf)

    def head(self, ctx: StepContext) -> GrowingHead:
        return ClassMeans(self.class_means(ctx).nan_to_num())

    def class_means(self, ctx: StepContext) -> Tensor:
        """Return the normalized means (classes,D) of normalized features; NaN for classes without an image in memory.

        They are kept until the net, the memory or the number of classes changes.
        """
        key = (ctx.model, ctx.model.version, ctx.memory.version, ctx.classes)
        if self._kept is None or self._kept[0] != key:
            self._kept = key, self._compute(ctx)
        return self._kept[1]

    def _compute(self, ctx: StepContext) -> Tensor:
        memory = ctx.memory
        if not memory.size:
            raise NotReadyError("the memory holds no image, so no class has a mean: give the memory more bytes")
        labels = memory.labels[: memory.size].to(ctx.model.device)
        sums: Tensor | None = None
        for slots in in_batches(memory.filled()):
            batch = memory.read(slots)
            features = F.normalize(answering_features(batch.x, ctx.model, self.mirror), dim=1)
            if sums is None:
                sums = features.new_zeros(ctx.classes, features.shape[1])
            sums.index_add_(0, batch.y, features)
        assert sums is not None, "a memory with images has a batch of them"
        means = F.normalize(sums / labels.bincount(minlength=ctx.classes)[:, None], dim=1)
        return means.masked_fill((labels.bincount(minlength=ctx.classes) == 0)[:, None], torch.nan)
