"""L_s = L_g + γ L_r for one class: what the real images ask for, and how far the synthetic ones are from it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.core import SummarizingNet
from engram.summarize.losses import gradient_matching_loss, relationship_loss

CHUNK_PIXELS = 8 * 32 * 32
"""Real images go through θ in chunks of about so many pixels: instance norm keeps images apart, so only the order of
summation changes, and activations that stay in cache make the gradient nearly twice as fast."""


@dataclass(frozen=True)
class MatchingTarget:
    """The real side of one class: gradients of the mean cross-entropy, and features, from one forward."""

    gradients: list[Tensor]
    features: Tensor


def matching_target(theta: SummarizingNet, images: Tensor, label: int) -> MatchingTarget:
    """Gradients and features of θ on the real images of class `label`."""
    weights = theta.matched_weights
    gradients = [torch.zeros_like(weight) for weight in weights]
    features = []
    for chunk in images.split(max(1, CHUNK_PIXELS // (images.shape[-1] * images.shape[-2]))):
        chunk_features = theta.features(chunk)
        loss = _cross_entropy_sum(theta.classify(chunk_features), label) / len(images)
        for total, gradient in zip(gradients, torch.autograd.grad(loss, weights), strict=True):
            total += gradient
        features.append(chunk_features.detach())
    return MatchingTarget(gradients, torch.cat(features))


def summarizing_loss(
    theta: SummarizingNet, images: Tensor, label: int, target: MatchingTarget, anchors: Tensor | None, gamma: float
) -> tuple[Tensor, Tensor]:
    """(L_g, γ L_r) of synthetic images of class `label`, differentiable in them through θ's gradient.

    `anchors` are θ's features of past summaries; None where there are none.
    """
    features = theta.features(images)
    loss = _cross_entropy_sum(theta.classify(features), label) / len(images)
    gradients = torch.autograd.grad(loss, theta.matched_weights, create_graph=True)
    matching = gradient_matching_loss(target.gradients, gradients)
    if anchors is None:
        return matching, torch.zeros_like(matching)
    return matching, gamma * relationship_loss(target.features, features, anchors)


def _cross_entropy_sum(logits: Tensor, label: int) -> Tensor:
    return F.cross_entropy(logits, torch.full((len(logits),), label, device=logits.device), reduction="sum")
