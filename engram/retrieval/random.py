"""Uniform retrieval without replacement."""

from __future__ import annotations

from torch import Tensor

from engram.base.batch import Batch, choose
from engram.base.context import StepContext
from engram.base.interfaces import Retrieval


class RandomRetrieval(Retrieval):
    """Draws from the filled memory, every slot alike."""

    def select(self, stream: Batch, count: int, ctx: StepContext) -> Tensor:
        return choose(count, ctx.memory.size, ctx.rng["replay"])
