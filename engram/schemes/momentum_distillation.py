"""Momentum knowledge distillation, MKD (Michel et al., 2024).

L = CE(views) + λ/2 · [KD(teacher's views, views) + KD(teacher's views, images)],   over stream and replay in one batch

The teacher is the moving average of the net. KD is T² times the soft cross-entropy: the divergence of the paper up to a
term that does not depend on the net.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.augmentations.view import ViewAugmentation, augment_view
from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.model import LOGITS, Model
from engram.base.rng import Randomness
from engram.base.settings import Natural, NonNegative, Positive
from engram.schemes.labelled import LabelScheme
from engram.schemes.lwf import distillation_loss


class MomentumDistillation(LabelScheme):
    """Trains on views of stream and replay images, and keeps the answers near those of the averaged net.

    Args:
        replay: number of memory images replayed in one step.
        weight: weight of the distillation (λ).
        temperature: temperature of the distillation (T).
        learning_rate: learning rate of Adam.
        weight_decay: weight decay of Adam, which adds to the gradients.
        augment: augmentation that makes the views.
    """

    provides = frozenset({"logits", "replay"})
    uses_average = True

    def __init__(
        self,
        replay: Natural = 64,
        weight: NonNegative = 5.5,
        temperature: Positive = 4.0,
        learning_rate: NonNegative = 0.0005,
        weight_decay: NonNegative = 0.0001,
        augment: ViewAugmentation = ViewAugmentation(),
    ) -> None:
        super().__init__(learning_rate)
        self.replay, self.weight, self.temperature = replay, weight, temperature
        self.weight_decay, self.augment = weight_decay, augment

    def build(self, model: Model, rng: Randomness) -> torch.optim.Optimizer:
        super().build(model, rng)
        return torch.optim.Adam(model.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)

    def replay_size(self, ctx: StepContext) -> int:
        return self.replay

    def loss(self, stream: Batch, replay: Batch | None, ctx: StepContext) -> Tensor:
        assert ctx.averaged is not None, "the learner keeps an averaged net for a scheme that uses it"
        both = Batch.join(stream, replay)
        views = augment_view(both.x, self.augment, ctx.rng["augment"])
        with torch.no_grad():
            taught = ctx.averaged.net(views, LOGITS)[1]
        of_views, of_images = ctx.model.logits(views), ctx.model.logits(both.x)
        kept = [distillation_loss(logits, taught, self.temperature) for logits in (of_views, of_images)]
        return F.cross_entropy(of_views, both.y) + self.weight * (kept[0] + kept[1]) / 2
