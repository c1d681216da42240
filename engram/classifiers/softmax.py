"""Softmax: the class with the largest logit."""

from __future__ import annotations

import torch
from torch import Tensor

from engram.base.context import StepContext
from engram.base.heads import GrowingHead
from engram.base.interfaces import Classifier
from engram.base.model import LOGITS
from engram.classifiers.batches import in_batches


class Softmax(Classifier):
    """Scores images by their logits, also for classes not seen yet if the head was made for them."""

    needs = frozenset({"logits"})

    def scores(self, x: Tensor, ctx: StepContext) -> Tensor:
        with ctx.model.evaluating():
            return torch.cat([ctx.model.logits(part) for part in in_batches(x)])

    def head(self, ctx: StepContext) -> GrowingHead:
        head = ctx.model.head(LOGITS)
        assert isinstance(head, GrowingHead), "logits have one output per class"
        return head
