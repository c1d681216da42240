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


class CosineHead(GrowingHead):
    """Cosines between the features and one proxy per class, over a temperature. It can grow, and be restored.

    Args:
        inputs: number of features.
        outputs: number of classes.
        temperature: what the cosines are divided by.
    """

    def __init__(self, inputs: int, outputs: int, temperature: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.temperature = temperature

    @torch.no_grad()
    def grow(self, classes: int, generator: torch.Generator) -> None:
        bound = 1 / math.sqrt(self.weight.shape[1])
        _add_rows(self.weight, classes - len(self.weight), bound, generator)

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(F.normalize(features, dim=1), F.normalize(self.weight, dim=1)) / self.temperature


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
        bound, added = 1 / math.sqrt(self.weight.shape[1]), classes - self.outputs
        _add_rows(self.weight, added, bound, generator)
        _add_rows(self.bias, added, bound, generator)

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


def _add_rows(parameter: nn.Parameter, rows: int, bound: float, generator: torch.Generator) -> None:
    """Add rows that are drawn uniformly from [-bound, bound]; the parameter keeps its identity."""
    shape = (max(0, rows), *parameter.shape[1:])
    require_room(math.prod(shape) * parameter.element_size())
    added = torch.empty(shape).uniform_(-bound, bound, generator=generator)
    parameter.data = torch.cat([parameter.data, added.to(parameter.device)])
    parameter.grad = None
