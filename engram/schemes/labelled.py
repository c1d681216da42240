"""The base class of schemes with a softmax head."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.interfaces import Scheme
from engram.base.model import Model
from engram.base.rng import Randomness
from engram.base.settings import NonNegative


class LabelScheme(Scheme):
    """Trains a softmax head by plain SGD.

    Args:
        learning_rate: learning rate of SGD on the net.
    """

    provides = frozenset({"logits"})

    def __init__(self, learning_rate: NonNegative) -> None:
        self.learning_rate = learning_rate

    def build(self, model: Model, rng: Randomness) -> torch.optim.Optimizer:
        model.add_classifier(rng["init"])
        return torch.optim.SGD(model.parameters(), lr=self.learning_rate)

    def replay_size(self, ctx: StepContext) -> int:
        return 0


def label_loss(batch: Batch, ctx: StepContext) -> Tensor:
    """Return the mean cross-entropy of the logits."""
    return F.cross_entropy(ctx.model.logits(batch.x), batch.y)
