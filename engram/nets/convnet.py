"""The summarizing net θ: three blocks of convolution, instance norm, ReLU and average pooling, and a linear head."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core import SummarizingNet
from engram.errors import InputError
from engram.heads import GrowingLinear
from engram.nets.pooling import halve


class ConvNet(SummarizingNet):
    """Features: 2048 / 8192 / 12800 at 32 / 64 / 84 px for `width` 128. The head starts without classes and grows.

    Its instance norms are group norms with one channel a group: the same arithmetic, and half the time of
    `nn.InstanceNorm2d` in the double backward of summarizing.

    Args:
        channels: channels of the images.
        size: height and width of the images.
        width: channels of each convolution.
        depth: number of blocks.
    """

    def __init__(self, channels: int, size: int, width: int = 128, depth: int = 3) -> None:
        if size >> depth < 1:
            raise InputError(f"depth {depth} halves images of {size} px to nothing: choose a smaller depth")
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
