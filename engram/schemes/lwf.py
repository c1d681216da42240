"""Learning without forgetting: after t finished tasks   (Li & Hoiem, 2017)

L = CE/(t+1) + (1 − 1/(t+1)) · KD,   KD = −T² · mean over images of Σ softmax(old/T) log softmax(new/T)
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.model import LOGITS, Model
from engram.base.rng import Randomness
from engram.base.settings import NonNegative, Positive
from engram.base.snapshot import Snapshot
from engram.schemes.labelled import LabelScheme


def distillation_loss(new: Tensor, old: Tensor, temperature: float = 2.0) -> Tensor:
    """Return T² times the soft cross-entropy between new and old logits, over the classes that the old logits have."""
    targets = F.softmax(old / temperature, dim=1)
    predictions = F.log_softmax(new[:, : old.shape[1]] / temperature, dim=1)
    return -(temperature**2) * (targets * predictions).sum(1).mean()


class LearningWithoutForgetting(LabelScheme):
    """Trains on the stream, and keeps its answers near those of the net of the last boundary for the same images.

    Args:
        temperature: temperature of the distillation (T).
        learning_rate: learning rate of SGD on the net.
    """

    def __init__(self, temperature: Positive = 2.0, learning_rate: NonNegative = 0.1) -> None:
        super().__init__(learning_rate)
        self.temperature = temperature

    def build(self, model: Model, rng: Randomness) -> torch.optim.Optimizer:
        optimizer = super().build(model, rng)
        self.add_state("previous", Snapshot(model))
        self.previous: Snapshot
        return optimizer

    def on_boundary(self, ctx: StepContext) -> None:
        self.previous.take(ctx.model)

    def check_restored(self, ctx: StepContext) -> None:
        self.previous.require_classes(1 if self.previous.taken else 0, ctx.model)

    def loss(self, stream: Batch, replay: Batch | None, ctx: StepContext) -> Tensor:
        logits = ctx.model.logits(stream.x)
        loss = F.cross_entropy(logits, stream.y)
        finished = self.previous.taken
        if not finished:
            return loss
        with torch.no_grad():
            old = self.previous.net(stream.x, LOGITS)[1]
        share = 1 / (finished + 1)
        return share * loss + (1 - share) * distillation_loss(logits, old, self.temperature)
