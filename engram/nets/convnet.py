"""The summarizing net θ: three blocks of convolution, instance norm, ReLU and average pooling, and a linear head."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.base.errors import InputError
from engram.base.heads import GrowingLinear
from engram.base.interfaces import SummarizingNet
from engram.base.settings import Count
from engram.nets.pooling import halve


class ConvNet(SummarizingNet):
    """The summarizing net θ.

    With `width` 128, images of 32 / 64 / 84 px have 2048 / 8192 / 12800 features. The head starts without classes and
    grows when new classes come.

    Instance norm is computed as group norm with one channel per group. The result is the same, but the double backward
    pass of summarizing takes half the time that it takes with `nn.InstanceNorm2d`.

    Args:
        channels: number of channels of the images.
        size: height and width of the images.
        width: number of channels of each convolution.
        depth: number of blocks.
    """

    def __init__(self, channels: int, size: int, width: Count = 128, depth: Count = 3) -> None:
        if size >> depth < 1:
            raise InputError(
                f"depth {depth} is too large for images of {size} px, which each block halves: choose a smaller depth"
            )
        super().__init__()
        inputs = [channels] + [width] * (depth - 1)
        self.convolutions = nn.ModuleList(nn.Conv2d(i, width, 3, padding=1) for i in inputs)
        self.norms = nn.ModuleList(nn.GroupNorm(width, width) for _ in inputs)
        self.head = GrowingLinear(width * (size // 2**depth) ** 2, 0)

    @property
    def matched_weights(self) -> list[Tensor]:
        return [convolution.weight for convolution in self.convolutions]  # type: ignore[misc]

    def features(self, x: Tensor) -> Tensor:
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = halve(F.relu(norm(convolution(x))))
        return x.flatten(1)

    def classify(self, features: Tensor) -> Tensor:
        logits: Tensor = self.head(features)
        return logits

    def grow(self, classes: int, generator: torch.Generator) -> None:
        self.head.grow(classes, generator)
