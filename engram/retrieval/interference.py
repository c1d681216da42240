"""Retrieval by what a virtual step on the stream batch would do to memory images."""

from __future__ import annotations

import torch
from torch import Tensor

from engram.core import Batch, Context, Parameters, Retrieval, choose
from engram.gradients import virtual_step


class InterferenceRetrieval(Retrieval):
    """Of some random candidates, those whose `measure` a virtual step raises most.

    Both measures are taken in train mode; batch-norm statistics are left as they were. With no more candidates than
    wanted, all of them are taken.
    """

    def __init__(self, candidates: int) -> None:
        self.candidates = candidates

    def measure(self, batch: Batch, ctx: Context, params: Parameters) -> Tensor:
        """One number an image, with these parameters."""
        raise NotImplementedError

    def select(self, stream: Batch, count: int, ctx: Context) -> Tensor:
        slots = choose(max(self.candidates, count), ctx.memory.size, ctx.rng["replay"])
        if len(slots) <= count:
            return slots
        batch = ctx.memory.read(slots)
        before = {name: parameter.detach() for name, parameter in ctx.model.net.named_parameters()}
        after = virtual_step(stream, ctx)
        with torch.no_grad():
            rise = self.measure(batch, ctx, after) - self.measure(batch, ctx, before)
        return slots[rise.topk(count).indices.cpu()]
