"""The reduced ResNet-18 that is common in online continual learning: 20/40/80/160 channels, 3×3 stem, no max-pool."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.base.settings import Range, resolve

NARROWEST = 8
"""Smallest width of the net."""
SOUND_CHANNELS = 16
"""Number of input channels from which the stock strided 1×1 convolution is sound."""


def _conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)


class NarrowPointwise(nn.Conv2d):
    """A strided 1×1 convolution that leaves out pixels first.

    The CPU kernel of torch 2.13 for it corrupts memory in channels-last layout with fewer than 16 input channels, on
    processors with AVX-512 (with fewer than 8 on others). Without a stride another kernel is used.
    """

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = self.stride
        kept = x[:, :, ::rows, ::columns].contiguous(memory_format=torch.channels_last)
        return F.conv2d(kept, self.weight)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions with batch norm, and a shortcut.

    The shortcut is the identity, or a 1×1 convolution if the shapes of input and output differ.

    Args:
        inputs: number of input channels.
        outputs: number of output channels.
        stride: stride of the first convolution.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = _conv3x3(inputs, outputs, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = _conv3x3(outputs, outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            convolution = NarrowPointwise if inputs < SOUND_CHANNELS else nn.Conv2d
            self.shortcut = nn.Sequential(
                convolution(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output (N,C,H,W)."""
        out = F.relu(self.norm1(self.conv1(x)), inplace=True)
        out = self.norm2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out, inplace=True)


class GridPool(nn.Module):
    """Means of 4×4 pixels of maps, as one vector per image. Maps of another size give as many means.

    Args:
        size: height and width of the maps.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.window = size, min(4, size)
        self.cells = size // self.window

    def forward(self, x: Tensor) -> Tensor:
        """Return the means (N,D)."""
        if x.shape[-1] != self.size:
            return F.adaptive_avg_pool2d(x, self.cells).flatten(1)
        return F.avg_pool2d(x, self.window).flatten(1)


class ReducedResNet18(nn.Module):
    """A backbone for images of at least 16 px. It can be trained on views of another size, too.

    With `width` 20, images of 32 px have 160 features, and images of 64 or 84 px have 640. The net computes in
    channels-last layout, which is fastest if its weights have that layout too.

    Args:
        channels: number of channels of the images.
        size: height and width of the images.
        width: number of channels of the first layer.
    """

    def __init__(self, channels: int, size: int, width: Annotated[int, Range(least=NARROWEST)] = 20) -> None:
        resolve(ReducedResNet18, {"width": width}, "net.")
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.stem, self.norm = _conv3x3(channels, width), nn.BatchNorm2d(width)
        blocks: list[nn.Module] = []
        inputs = width
        for outputs, stride in zip(widths, (1, 2, 2, 2), strict=True):
            blocks += [BasicBlock(inputs, outputs, stride), BasicBlock(outputs, outputs, 1)]
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.pool = GridPool(-(-size // 8))
        self.feature_width = widths[-1] * self.pool.cells**2

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of the images (N,D)."""
        x = x.to(memory_format=torch.channels_last)
        x = self.blocks(F.relu(self.norm(self.stem(x)), inplace=True))
        features: Tensor = self.pool(x)
        return features
