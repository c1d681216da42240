"""The reduced ResNet-18 of online continual learning: 20/40/80/160 channels, 3×3 stem, no max-pool."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.errors import InputError

NARROWEST = 8
"""Below this, the CPU kernel of torch 2.13 for a strided 1×1 convolution in channels-last layout corrupts memory."""


def require_width(width: int) -> None:
    """Refuse a net that is too narrow to be safe."""
    if width < NARROWEST:
        raise InputError(f"the net's width is {width}: it must be {NARROWEST} at least")


def _conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut (1×1 where shapes differ)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = _conv3x3(inputs, outputs, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = _conv3x3(outputs, outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.norm1(self.conv1(x)), inplace=True)
        out = self.norm2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out, inplace=True)


class ReducedResNet18(nn.Module):
    """Features of images of 16 pixels and more: 160 at 32 px, 640 at 64 and 84 px (for `width` 20). It computes in
    channels-last layout, best with weights in that layout too.

    Args:
        channels: channels of the images.
        size: height and width of the images.
        width: channels of the first layer.
    """

    def __init__(self, channels: int, size: int, width: int = 20) -> None:
        require_width(width)
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.stem, self.norm = _conv3x3(channels, width), nn.BatchNorm2d(width)
        blocks: list[nn.Module] = []
        inputs = width
        for outputs, stride in zip(widths, (1, 2, 2, 2), strict=True):
            blocks += [BasicBlock(inputs, outputs, stride), BasicBlock(outputs, outputs, 1)]
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        map_size = -(-size // 8)
        self.pool = min(4, map_size)
        self.feature_width = widths[-1] * (map_size // self.pool) ** 2

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(memory_format=torch.channels_last)
        x = self.blocks(F.relu(self.norm(self.stem(x)), inplace=True))
        return F.avg_pool2d(x, self.pool).flatten(1)
