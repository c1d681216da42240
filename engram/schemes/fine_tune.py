"""Fine-tuning: L = CE(stream). It is the lower bound, and on an iid stream of many epochs the upper bound."""

from __future__ import annotations

from torch import Tensor

from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.settings import NonNegative
from engram.schemes.labelled import LabelScheme, label_loss


class FineTune(LabelScheme):
    """Trains on the stream alone.

    Args:
        learning_rate: learning rate of SGD on the net.
    """

    def __init__(self, learning_rate: NonNegative = 0.1) -> None:
        super().__init__(learning_rate)

    def loss(self, stream: Batch, replay: Batch | None, ctx: StepContext) -> Tensor:
        return label_loss(stream, ctx)
