"""Retrieval of the memory images that a virtual step on the stream batch would hurt most."""

from __future__ import annotations

import torch
from torch import Tensor

from engram.base.batch import Batch, choose
from engram.base.context import StepContext
from engram.base.gradients import virtual_step
from engram.base.interfaces import Retrieval
from engram.base.model import Parameters
from engram.base.settings import Count


class InterferenceRetrieval(Retrieval):
    """Chooses among random candidates those whose `measure` a virtual step raises most.

    Both measures are taken in train mode; batch-norm statistics are left as they were. If there are no more
    candidates than wanted, all of them are taken.

    Args:
        candidates: number of memory images considered.
    """

    def __init__(self, candidates: Count) -> None:
        self.candidates = candidates

    def measure(self, batch: Batch, ctx: StepContext, params: Parameters) -> Tensor:
        """Return one number per image, computed with these parameters."""
        raise NotImplementedError

    def select(self, stream: Batch, count: int, ctx: StepContext) -> Tensor:
        slots = choose(max(self.candidates, count), ctx.memory.size, ctx.rng["replay"])
        if len(slots) <= count:
            return slots
        batch = ctx.memory.read(slots)
        before = {name: parameter.detach() for name, parameter in ctx.model.net.named_parameters()}
        after = virtual_step(stream, ctx)
        with torch.no_grad():
            rise = self.measure(batch, ctx, after) - self.measure(batch, ctx, before)
        return slots[rise.topk(count).indices.cpu()]
