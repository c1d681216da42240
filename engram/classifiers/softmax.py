"""Softmax: the class with the largest logit."""

from __future__ import annotations

from torch import Tensor

from engram.base.context import StepContext
from engram.base.heads import GrowingHead
from engram.base.interfaces import Classifier
from engram.base.model import LOGITS, Model
from engram.classifiers.features import answering_features


class Softmax(Classifier):
    """Scores images by their logits, also for classes not seen yet if the head was made for them.

    Args:
        mirror: use the mean of an image's features and those of its mirror image, which takes twice as long. It helps
            where left and right mean nothing.
    """

    needs = frozenset({"logits"})

    def __init__(self, mirror: bool = False) -> None:
        self.mirror = mirror

    def scores(self, x: Tensor, ctx: StepContext) -> Tensor:
        with ctx.model.evaluating():
            scores: Tensor = _head_of(ctx.model)(answering_features(x, ctx.model, self.mirror))
            return scores

    def head(self, ctx: StepContext) -> GrowingHead:
        return _head_of(ctx.model)


def _head_of(model: Model) -> GrowingHead:
    head = model.head(LOGITS)
    assert isinstance(head, GrowingHead), "logits have one output per class"
    return head
