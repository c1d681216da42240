"""What schemes with a softmax head have in common."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.core import Batch, Context, Model, Randomness, Scheme


class LabelScheme(Scheme):
    """Predicts labels by logits, trained by plain SGD."""

    provides = frozenset({"logits"})

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate

    def build(self, model: Model, rng: Randomness) -> torch.optim.Optimizer:
        model.add_classifier(rng["init"])
        return torch.optim.SGD(model.parameters(), lr=self.learning_rate)

    def replay_size(self, ctx: Context) -> int:
        return 0


def label_loss(batch: Batch, ctx: Context) -> Tensor:
    """Mean cross-entropy of the logits."""
    return F.cross_entropy(ctx.model.logits(batch.x), batch.y)
