"""The paper's loss for one class: L_s = L_g + γ L_r (Gu et al., 2024)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.base.interfaces import SummarizingNet
from engram.base.precision import widened
from engram.summarize.matching.base import MatchingLoss, in_chunks
from engram.summarize.matching.losses import gradient_matching_loss, relationship_loss


@dataclass(frozen=True)
class GradientTarget:
    """The real side of one class, from one forward pass.

    Args:
        gradients: gradients of the mean cross-entropy, one for each matched weight.
        features: features of each real image.
    """

    gradients: list[Tensor]
    features: Tensor


def gradient_target(theta: SummarizingNet, images: Tensor, label: int) -> GradientTarget:
    """Return gradients and features of θ on the real images of a class."""
    weights = theta.matched_weights
    gradients = [torch.zeros_like(weight) for weight in weights]
    features = []
    for chunk in in_chunks(images):
        chunk_features = widened(theta.features(chunk))
        loss = _cross_entropy_sum(theta.classify(chunk_features), label) / len(images)
        for total, gradient in zip(gradients, torch.autograd.grad(loss, weights), strict=True):
            total += gradient
        features.append(chunk_features.detach())
    return GradientTarget(gradients, torch.cat(features))


def gradient_terms(
    theta: SummarizingNet, images: Tensor, label: int, target: GradientTarget, anchors: Tensor | None, gamma: float
) -> tuple[Tensor, Tensor]:
    """Return (L_g, γ L_r) of the synthetic images of a class, differentiable in them through θ's gradient."""
    features = widened(theta.features(images))
    loss = _cross_entropy_sum(theta.classify(features), label) / len(images)
    gradients = torch.autograd.grad(loss, theta.matched_weights, create_graph=True)
    matching = gradient_matching_loss(target.gradients, gradients)
    if anchors is None:
        return matching, torch.zeros_like(matching)
    return matching, gamma * relationship_loss(target.features, features, anchors)


class GradientMatching(MatchingLoss):
    """Matches the gradients of θ's convolutions, and the distances to past summaries."""

    def target(self, theta: SummarizingNet, images: Tensor, label: int) -> GradientTarget:
        return gradient_target(theta, images, label)

    def terms(
        self,
        theta: SummarizingNet,
        images: Tensor,
        label: int,
        target: GradientTarget,
        anchors: Tensor | None,
        gamma: float,
    ) -> dict[str, Tensor]:
        matching, relation = gradient_terms(theta, images, label, target, anchors, gamma)
        return {"gradient_matching": matching, "relationship": relation}


def _cross_entropy_sum(logits: Tensor, label: int) -> Tensor:
    return F.cross_entropy(widened(logits), torch.full((len(logits),), label, device=logits.device), reduction="sum")
