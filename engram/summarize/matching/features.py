"""Distribution matching: the mean features of summaries and of real images are made equal   (Zhao & Bilen, 2023).

L = ‖ mean f(M_c) − mean f(R) ‖² + γ L_r

f are θ's features, not normalized. The gradient is of first order: nothing is differentiated twice, and θ's weights get
no gradient at all. On CIFAR-100 its gradients in the images are as large as those of gradient matching with ten
summaries a class, and up to four times smaller with one, so the paper's learning rates of the summaries serve both.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engram.base.interfaces import SummarizingNet
from engram.base.precision import widened
from engram.summarize.matching.base import MatchingLoss, in_chunks
from engram.summarize.matching.losses import relationship_loss


def feature_matching_loss(real: Tensor, synthetic: Tensor) -> Tensor:
    """Return the squared distance between the mean features of real images (N,D) and of synthetic images (k,D)."""
    return (synthetic.mean(0) - real.mean(0)).square().sum()


class FeatureMatching(MatchingLoss):
    """Matches the mean features of θ, and the distances to past summaries."""

    @torch.no_grad()
    def target(self, theta: SummarizingNet, images: Tensor, label: int) -> Tensor:
        return torch.cat([widened(theta.features(chunk)) for chunk in in_chunks(images)])

    def terms(
        self, theta: SummarizingNet, images: Tensor, label: int, target: Tensor, anchors: Tensor | None, gamma: float
    ) -> dict[str, Tensor]:
        features = widened(theta.features(images))
        matching = feature_matching_loss(target, features)
        if anchors is None:
            return {"feature_matching": matching, "relationship": torch.zeros_like(matching)}
        return {"feature_matching": matching, "relationship": gamma * relationship_loss(target, features, anchors)}
