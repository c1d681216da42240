"""The differentiable augmentation of dataset condensation (Zhao & Bilen, 2021), one draw an image, nothing clamped."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class DifferentiableAugmentation:
    """One draw for each of N images."""

    brightness: Tensor
    """Added to every pixel, in [-½, ½)."""
    saturation: Tensor
    """Factor on the deviation from the pixel's mean over channels, in [0, 2)."""
    contrast: Tensor
    """Factor on the deviation from the image's mean, in [½, 1½)."""
    shift: Tensor
    """(N, 2) rows and columns moved, zeros moving in; at most an eighth of the image."""


def draw_augmentation(count: int, size: int, generator: torch.Generator) -> DifferentiableAugmentation:
    """Draw parameters for `count` images of `size` pixels a side."""
    uniform = torch.rand(3, count, generator=generator)
    reach = int(size / 8 + 0.5)
    shift = torch.randint(-reach, reach + 1, (count, 2), generator=generator)
    return DifferentiableAugmentation(uniform[0] - 0.5, uniform[1] * 2, uniform[2] + 0.5, shift)


def augment(images: Tensor, draw: DifferentiableAugmentation) -> Tensor:
    """Brightness, saturation, contrast, then shift, differentiable in `images`."""

    def per_image(values: Tensor) -> Tensor:
        return values.to(images).view(-1, 1, 1, 1)

    images = images + per_image(draw.brightness)
    grey = images.mean(1, keepdim=True)
    images = grey + (images - grey) * per_image(draw.saturation)
    mean = images.mean((1, 2, 3), keepdim=True)
    images = mean + (images - mean) * per_image(draw.contrast)
    return _shift(images, draw.shift.to(images.device))


def _shift(images: Tensor, shift: Tensor) -> Tensor:
    height, width = images.shape[-2:]
    reach = max(height, width) // 8 + 1
    padded = F.pad(images, (reach, reach, reach, reach))
    rows = torch.arange(height, device=images.device) + reach - shift[:, :1]
    columns = torch.arange(width, device=images.device) + reach - shift[:, 1:]
    image = torch.arange(len(images), device=images.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[image, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()
