"""Maximal gradient interference: the memory images whose gradient a step on the stream would enlarge most
(Gu et al., 2022).

size(x) = ‖softmax(logits) − onehot‖₁ · ‖features‖₁   the size of x's gradient at the last layer
score(x) = size after a virtual step on the stream − size before
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.model import LOGITS, Parameters
from engram.base.settings import Count
from engram.retrieval.interference import InterferenceRetrieval


class MaximalGradientInterference(InterferenceRetrieval):
    """Chooses among random candidates those whose last-layer gradient a virtual step on the stream batch enlarges most.

    Args:
        candidates: number of memory images considered.
    """

    needs = frozenset({"logits"})

    def __init__(self, candidates: Count = 50) -> None:
        super().__init__(candidates)

    def measure(self, batch: Batch, ctx: StepContext, params: Parameters) -> Tensor:
        features, logits = ctx.model.outputs(batch.x, LOGITS, params=params)
        error = logits.softmax(1) - F.one_hot(batch.y, logits.shape[1])
        return error.abs().sum(1) * features.abs().sum(1)
