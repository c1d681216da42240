"""Experience replay: L = CE(stream) + CE(replay)   (Chaudhry et al., 2019)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.settings import Natural, NonNegative
from engram.schemes.labelled import LabelScheme, label_loss


class ExperienceReplay(LabelScheme):
    """Trains on the stream batch and a batch replayed from memory.

    Args:
        replay: number of memory images replayed in one step.
        passes: "separate" runs stream and replay in a forward pass each, "joint" in one pass; "joint-mean" also
            takes one mean over both. "thrice" does the same after a pass over the stream, before replay images are
            chosen, and one over the replay images. These two only move the batch-norm statistics, as the released code
            of ASER does.
        learning_rate: learning rate of SGD on the net.
    """

    provides = frozenset({"logits", "replay"})

    def __init__(
        self,
        replay: Natural = 10,
        passes: Literal["separate", "joint", "joint-mean", "thrice"] = "separate",
        learning_rate: NonNegative = 0.1,
    ) -> None:
        super().__init__(learning_rate)
        self.replay, self.passes = replay, passes

    def replay_size(self, ctx: StepContext) -> int:
        return self.replay

    def before_retrieval(self, stream: Batch, ctx: StepContext) -> None:
        if self.passes == "thrice":
            move_statistics(stream, ctx)

    def loss(self, stream: Batch, replay: Batch | None, ctx: StepContext) -> Tensor:
        if replay is None:
            return label_loss(stream, ctx)
        if self.passes == "separate":
            return label_loss(stream, ctx) + label_loss(replay, ctx)
        if self.passes == "thrice":
            move_statistics(replay, ctx)
        both = Batch.join(stream, replay)
        if self.passes in ("joint-mean", "thrice"):
            return label_loss(both, ctx)
        logits = ctx.model.logits(both.x).split([len(stream), len(replay)])
        return F.cross_entropy(logits[0], stream.y) + F.cross_entropy(logits[1], replay.y)


@torch.no_grad()
def move_statistics(batch: Batch, ctx: StepContext) -> None:
    """Run the batch through the net in train mode, for its batch-norm statistics alone."""
    ctx.model.features(batch.x)
