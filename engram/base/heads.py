"""Heads with one output per class, which grow as classes come."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.base.initialization import require_room


class GrowingHead(nn.Module):
    """A head that can make room for more classes."""

    def grow(self, classes: int, generator: torch.Generator) -> None:
        """Make room for `classes` classes in all. Existing outputs stay, and parameters keep their identity."""
        raise NotImplementedError


class GrowingLinear(GrowingHead):
    """A linear layer that can grow, and be restored at any size."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    @property
    def outputs(self) -> int:
        return len(self.bias)

    @torch.no_grad()
    def grow(self, classes: int, generator: torch.Generator) -> None:
        added = max(0, classes - self.outputs)
        inputs = self.weight.shape[1]
        require_room(added * (inputs + 1) * self.weight.element_size())
        bound = 1 / math.sqrt(inputs)
        weight = torch.empty(added, inputs).uniform_(-bound, bound, generator=generator)
        bias = torch.empty(added).uniform_(-bound, bound, generator=generator)
        self.weight.data = torch.cat([self.weight.data, weight.to(self.weight.device)])
        self.bias.data = torch.cat([self.bias.data, bias.to(self.bias.device)])
        self.weight.grad = self.bias.grad = None

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(features, self.weight, self.bias)


class ClassMeans(GrowingHead):
    """Scores features by their cosines with class means. A class whose mean is zero has none and scores -inf.

    Args:
        means: normalized means (classes,D).
    """

    def __init__(self, means: Tensor) -> None:
        super().__init__()
        self.means = nn.Parameter(means, requires_grad=False)

    def grow(self, classes: int, generator: torch.Generator) -> None:
        added = max(0, classes - len(self.means))
        self.means.data = torch.cat([self.means.data, self.means.new_zeros(added, self.means.shape[1])])

    def forward(self, features: Tensor) -> Tensor:
        cosines = F.normalize(features, dim=1) @ self.means.T
        return cosines.masked_fill((self.means == 0).all(1), -torch.inf)
