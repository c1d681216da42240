"""Uniform retrieval without replacement."""

from __future__ import annotations

from torch import Tensor

from engram.core import Batch, Context, Retrieval, choose


class RandomRetrieval(Retrieval):
    """Draws from the filled memory, every slot alike."""

    def select(self, stream: Batch, count: int, ctx: Context) -> Tensor:
        return choose(count, ctx.memory.size, ctx.rng["replay"])
