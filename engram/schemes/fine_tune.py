"""Fine-tuning: L = CE(stream). The lower bound; over a shuffled stream of many epochs, the upper one."""

from __future__ import annotations

from torch import Tensor

from engram.core import Batch, Context
from engram.schemes.labelled import LabelScheme, label_loss


class FineTune(LabelScheme):
    """Trains on the stream alone.

    Args:
        learning_rate: of the net.
    """

    def __init__(self, learning_rate: float = 0.1) -> None:
        super().__init__(learning_rate)

    def loss(self, stream: Batch, replay: Batch | None, ctx: Context) -> Tensor:
        return label_loss(stream, ctx)
