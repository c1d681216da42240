"""KNN-Shapley values: what each candidate adds to the K-nearest-neighbor vote on an evaluation point
(Jia et al., 2019; Shim et al., 2021).

With the N candidates sorted by distance to the point and I_m = 1 where the m-th has its label:
s_N = I_N · min(K,N)/(K·N),   s_m = s_{m+1} + (I_m − I_{m+1})/K · min(K,m)/m
"""

from __future__ import annotations

import torch
from torch import Tensor


def knn_shapley(
    candidates: Tensor, candidate_labels: Tensor, points: Tensor, point_labels: Tensor, neighbors: int = 3
) -> Tensor:
    """Return the values (points, candidates), by squared Euclidean distance.

    Args:
        candidates: features of the candidates (N,D).
        candidate_labels: their labels (N,).
        points: features of the evaluation points (P,D).
        point_labels: their labels (P,).
        neighbors: number of neighbors that vote (K).
    """
    count = len(candidates)
    order = (torch.cdist(points, candidates) ** 2).argsort(dim=1, stable=True)
    matches = (candidate_labels[order] == point_labels[:, None]).to(candidates)
    rank = torch.arange(1, count + 1, device=candidates.device)
    weight = rank.clamp(max=neighbors) / (rank * neighbors)
    steps = matches.clone()
    steps[:, :-1] -= matches[:, 1:]
    by_rank = (steps * weight).flip(1).cumsum(1).flip(1)
    return torch.zeros_like(by_rank).scatter_(1, order, by_rank)


def sample_per_class(labels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return the positions of up to `count` random members of each class, classes ascending."""
    shuffled = torch.randperm(len(labels), generator=generator)
    chosen = [shuffled[labels[shuffled] == label][:count] for label in labels.unique().tolist()]
    return torch.cat(chosen) if chosen else shuffled
