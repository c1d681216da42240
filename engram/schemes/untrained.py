"""No training at all: the stream only passes the memory, and the net stays as it began (GDumb, Prabhu et al., 2020)."""

from __future__ import annotations

from torch import Tensor

from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.schemes.labelled import LabelScheme


class Untrained(LabelScheme):
    """Leaves the net alone: a classifier may train a copy of it, from its first weights, when it is asked."""

    provides = frozenset({"logits", "first weights"})

    def __init__(self) -> None:
        super().__init__(learning_rate=0.0)

    def loss(self, stream: Batch, replay: Batch | None, ctx: StepContext) -> Tensor | None:
        return None
