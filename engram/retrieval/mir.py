"""Maximally interfered retrieval: the memory images whose loss a step on the stream would raise most
(Aljundi et al., 2019).

score(x) = CE(x; φ − lr ∇CE(stream)) − CE(x; φ)
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.model import Parameters
from engram.base.settings import Count
from engram.retrieval.interference import InterferenceRetrieval


class MaximallyInterfered(InterferenceRetrieval):
    """Chooses among random candidates those whose loss a virtual step on the stream batch raises most.

    Args:
        candidates: number of memory images considered.
    """

    def __init__(self, candidates: Count = 50) -> None:
        super().__init__(candidates)

    def measure(self, batch: Batch, ctx: StepContext, params: Parameters) -> Tensor:
        return F.cross_entropy(ctx.scheme.class_scores(batch.x, ctx, params), batch.y, reduction="none")
