"""The differentiable augmentation of dataset condensation (Zhao & Bilen, 2021), one draw per image, nothing clamped."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.base.settings import NonNegative, Share


@dataclass(frozen=True)
class AugmentationRanges:
    """How far the augmentation goes.

    Args:
        brightness: largest number added to or subtracted from all pixels.
        saturation: largest factor on the deviation from the pixel's mean over channels; the smallest is 0.
        contrast: the deviation from the image's mean is multiplied by a factor between one minus and one plus this.
        shift: largest shift as a share of the image's side; zeros move in.
        enabled: whether images are changed at all.
    """

    brightness: NonNegative = 0.5
    saturation: NonNegative = 2.0
    contrast: NonNegative = 0.5
    shift: Share = 0.125
    enabled: bool = True


@dataclass(frozen=True)
class DifferentiableAugmentation:
    """The parameters drawn for N images, one value each; `shift` is (N,2), rows and columns."""

    brightness: Tensor
    saturation: Tensor
    contrast: Tensor
    shift: Tensor


def draw_augmentation(
    count: int, size: int, generator: torch.Generator, ranges: AugmentationRanges = AugmentationRanges()
) -> DifferentiableAugmentation:
    """Draw parameters for `count` images of `size` pixels per side."""
    uniform = torch.rand(3, count, generator=generator)
    either_way = 2 * uniform - 1
    reach = int(size * ranges.shift + 0.5)
    shift = torch.randint(-reach, reach + 1, (count, 2), generator=generator)
    return DifferentiableAugmentation(
        brightness=ranges.brightness * either_way[0],
        saturation=ranges.saturation * uniform[1],
        contrast=1 + ranges.contrast * either_way[2],
        shift=shift,
    )


def augment_differentiably(images: Tensor, draw: DifferentiableAugmentation) -> Tensor:
    """Change brightness, saturation and contrast, then shift; the result is differentiable in `images`."""

    def per_image(values: Tensor) -> Tensor:
        return values.to(images).view(-1, 1, 1, 1)

    images = images + per_image(draw.brightness)
    gray = images.mean(1, keepdim=True)
    images = gray + (images - gray) * per_image(draw.saturation)
    mean = images.mean((1, 2, 3), keepdim=True)
    images = mean + (images - mean) * per_image(draw.contrast)
    return _shift(images, draw.shift.to(images.device))


def _shift(images: Tensor, shift: Tensor) -> Tensor:
    height, width = images.shape[-2:]
    reach = int(shift.abs().max()) if len(shift) else 0
    padded = F.pad(images, (reach, reach, reach, reach))
    rows = torch.arange(height, device=images.device) + reach - shift[:, :1]
    columns = torch.arange(width, device=images.device) + reach - shift[:, 1:]
    image = torch.arange(len(images), device=images.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[image, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()
