"""The two matching losses of SSD, as pure functions (Gu et al., 2024).

L_g = Σ_layers ‖g_synthetic − g_real‖²                 gradients of the same net on both sides
L_r = Σ_anchors | ‖m_synthetic − a‖ − ‖m_real − a‖ |   m: mean of L2-normalized features; a: normalized anchor feature
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

SMALLEST_SQUARE = 1e-12


def gradient_matching_loss(real: Sequence[Tensor], synthetic: Sequence[Tensor]) -> Tensor:
    """Return L_g: the squared differences summed over all entries of all layers, without normalization."""
    if len(real) != len(synthetic):
        raise ValueError(f"{len(real)} real and {len(synthetic)} synthetic gradients: one of each is needed a layer")
    return torch.stack([(s - r).square().sum() for r, s in zip(real, synthetic, strict=True)]).sum()


def mean_feature(features: Tensor) -> Tensor:
    """Return the mean over images of the L2-normalized features, not normalized again."""
    return F.normalize(features, dim=1).mean(0)


def relationship_loss(real: Tensor, synthetic: Tensor, anchors: Tensor) -> Tensor:
    """Return L_r, given the features of real images (N,D), synthetic images (k,D) and anchors (A,D), not normalized.

    It is zero without anchors. Distances are √max(d², 1e-12), so that their gradient is finite where they vanish.
    """
    anchors = F.normalize(anchors, dim=1)

    def distances(features: Tensor) -> Tensor:
        squared = (mean_feature(features) - anchors).square().sum(1)
        return squared.clamp_min(SMALLEST_SQUARE).sqrt()

    return (distances(synthetic) - distances(real)).abs().sum()
