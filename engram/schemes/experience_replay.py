"""Experience replay: L = CE(stream) + CE(replay)   (Chaudhry et al., 2019)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from torch.nn import functional as F

from engram.core import Batch, Context
from engram.errors import require_at_least
from engram.schemes.labelled import LabelScheme, label_loss


class ExperienceReplay(LabelScheme):
    """Trains on the stream batch and a batch replayed from memory.

    Args:
        replay: memory images of one step.
        passes: stream and replay in a forward pass each; in a joint one; or in a joint one with one mean over both.
        learning_rate: of the net.
    """

    provides = frozenset({"logits", "replay"})

    def __init__(
        self,
        replay: int = 10,
        passes: Literal["separate", "joint", "joint-mean"] = "separate",
        learning_rate: float = 0.1,
    ) -> None:
        super().__init__(learning_rate)
        require_at_least(0, replay=replay)
        self.replay, self.passes = replay, passes

    def replay_size(self, ctx: Context) -> int:
        return self.replay

    def loss(self, stream: Batch, replay: Batch | None, ctx: Context) -> Tensor:
        if replay is None:
            return label_loss(stream, ctx)
        if self.passes == "separate":
            return label_loss(stream, ctx) + label_loss(replay, ctx)
        both = Batch.join(stream, replay)
        if self.passes == "joint-mean":
            return label_loss(both, ctx)
        logits = ctx.model.logits(both.x).split([len(stream), len(replay)])
        return F.cross_entropy(logits[0], stream.y) + F.cross_entropy(logits[1], replay.y)
