"""Dark experience replay, DER++ (Buzzega et al., 2020).

L = CE(stream) + α · MSE(logits, stored logits; first replay) + β · CE(second replay)

The stored logits of an image are those that it had in its own training step, before the net was changed by it.
"""

from __future__ import annotations

import dataclasses

from torch import Tensor
from torch.nn import functional as F

from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.settings import Natural, NonNegative
from engram.schemes.labelled import LabelScheme, label_loss


def stored_logits_loss(logits: Tensor, stored: Tensor) -> Tensor:
    """Return the mean squared difference of logits (N,C) from stored ones (N,≤C); where these are NaN, none counts."""
    known = ~stored.isnan()
    if not known.any():
        return logits.new_zeros(())
    return F.mse_loss(logits[:, : stored.shape[1]][known], stored[known])


class DarkExperienceReplay(LabelScheme):
    """Trains on the stream batch and two draws from memory, in a forward pass each.

    The logits that are stored are those of the augmented images, if there is an augmentation, in train mode. If a batch
    is trained on more than once, they are those of the last time. Classes that came later are not compared.

    Args:
        replay: number of memory images in each of the two draws.
        alpha: weight of the stored logits (α).
        beta: weight of the labels of replayed images (β).
        learning_rate: learning rate of SGD on the net.
    """

    provides = frozenset({"logits", "replay", "stored logits"})
    draws = 2

    def __init__(
        self, replay: Natural = 10, alpha: NonNegative = 0.3, beta: NonNegative = 0.5, learning_rate: NonNegative = 0.1
    ) -> None:
        super().__init__(learning_rate)
        self.replay, self.alpha, self.beta = replay, alpha, beta
        self._logits: Tensor | None = None

    def replay_size(self, ctx: StepContext) -> int:
        return self.replay

    def loss(self, stream: Batch, replay: Batch | None, ctx: StepContext) -> Tensor:
        logits = ctx.model.logits(stream.x)
        self._logits = logits.detach()
        loss = F.cross_entropy(logits, stream.y)
        if replay is None:
            return loss
        assert replay.logits is not None, "its memory keeps logits"
        x, stored, half = replay.x, replay.logits, len(replay) // 2
        loss = loss + self.alpha * stored_logits_loss(ctx.model.logits(x[:half]), stored[:half])
        return loss + self.beta * label_loss(Batch(x[half:], replay.y[half:]), ctx)

    def with_logits(self, stream: Batch) -> Batch:
        stream, self._logits = dataclasses.replace(stream, logits=self._logits), None
        return stream
