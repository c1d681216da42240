"""Softmax: the class with the largest logit."""

from __future__ import annotations

import torch
from torch import Tensor

from engram.classify.batches import in_batches
from engram.core import Classifier, Context


class Softmax(Classifier):
    """Scores are the logits of the classes seen, and of unseen ones where the head was made for more."""

    needs = frozenset({"logits"})

    def scores(self, x: Tensor, ctx: Context) -> Tensor:
        with ctx.model.evaluating():
            return torch.cat([ctx.model.logits(part) for part in in_batches(x)])
