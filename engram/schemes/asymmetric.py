"""Replay with asymmetric cross-entropy, ER-ACE (Caccia et al., 2022).

L = CE over the classes of the stream batch alone (stream) + CE over all classes (replay)

New classes learn to be told from each other by the stream, and from past classes by the memory. So they do not push
down the logits of past classes, which the stream batch does not show.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.settings import Natural, NonNegative
from engram.schemes.labelled import LabelScheme, label_loss


def own_classes_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of logits (N,C) over those classes alone that occur among the labels."""
    present = torch.zeros(logits.shape[1], dtype=torch.bool, device=logits.device)
    present[labels] = True
    return F.cross_entropy(logits.masked_fill(~present, -torch.inf), labels)


class AsymmetricReplay(LabelScheme):
    """Trains on the stream batch and a batch replayed from memory, in a forward pass each.

    Args:
        replay: number of memory images replayed in one step.
        learning_rate: learning rate of SGD on the net.
    """

    provides = frozenset({"logits", "replay"})

    def __init__(self, replay: Natural = 10, learning_rate: NonNegative = 0.1) -> None:
        super().__init__(learning_rate)
        self.replay = replay

    def replay_size(self, ctx: StepContext) -> int:
        return self.replay

    def loss(self, stream: Batch, replay: Batch | None, ctx: StepContext) -> Tensor:
        loss = own_classes_loss(ctx.model.logits(stream.x), stream.y)
        return loss if replay is None else loss + label_loss(replay, ctx)
