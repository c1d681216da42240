"""The second view of contrastive training: resized crop, flip, colour jitter and grey, drawn for each image.

Parameters come from a generator of ours; kornia's colour operations only apply them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

CROP_ATTEMPTS = 10


@dataclass(frozen=True)
class ViewAugmentation:
    """Probabilities and ranges of the augmentation.

    Args:
        crop: how a crop is drawn and resized. "published" does what the library of SCR's time did (kornia 0.4.1): its
            sides are truncated to whole pixels and smaller than the image's, pixels are sampled at their centres, and
            zeros lie beyond the edge. "aligned" rounds the sides, lets a crop be as large as the image, and keeps the
            corner pixels in place.
        crop_scale: share of the image's area a crop may take.
        crop_ratio: aspect ratios of a crop, width over height.
        flip: probability of a horizontal flip.
        jitter: probability of colour jitter.
        brightness: brightness moves by up to so much.
        contrast: pixels are multiplied by up to one plus or minus so much.
        saturation: saturation is multiplied by up to one plus or minus so much.
        hue: hue turns by up to so much of a full turn.
        grey: probability of losing all colour.
    """

    crop: Literal["published", "aligned"] = "published"
    crop_scale: tuple[float, float] = (0.2, 1.0)
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    jitter: float = 0.8
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1
    grey: float = 0.2


def augment_view(images: Tensor, settings: ViewAugmentation, generator: torch.Generator) -> Tensor:
    """An augmented copy of each image. Grey images keep out of what needs colour."""
    count, channels, height, width = images.shape
    boxes = draw_crops(count, height, width, settings, generator)
    flips = torch.rand(count, generator=generator) < settings.flip
    views = crop_and_resize(images, boxes, flips, settings.crop)
    views = _jitter(views, settings, generator)
    grey = torch.rand(count, generator=generator) < settings.grey
    if channels == 3:
        weights = views.new_tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
        views = torch.where(_per_image(grey, views), (views * weights).sum(1, keepdim=True), views)
    return views


def draw_crops(count: int, height: int, width: int, settings: ViewAugmentation, generator: torch.Generator) -> Tensor:
    """(count, 4) integer boxes: left, top, width, height. The whole image where ten draws did not fit."""
    uniform = torch.rand(count, CROP_ATTEMPTS, 4, generator=generator)
    low, high = settings.crop_scale
    area = height * width * (low + (high - low) * uniform[..., 0])
    low, high = torch.tensor(settings.crop_ratio).log().tolist()
    ratio = (low + (high - low) * uniform[..., 1]).exp()
    box_width, box_height = (area * ratio).sqrt(), (area / ratio).sqrt()
    if settings.crop == "published":
        box_width, box_height = box_width.trunc(), box_height.trunc()
        fits = (box_width >= 1) & (box_width < width) & (box_height >= 1) & (box_height < height)
    else:
        box_width, box_height = box_width.round(), box_height.round()
        fits = (box_width >= 1) & (box_width <= width) & (box_height >= 1) & (box_height <= height)
    left = (uniform[..., 2] * (width - box_width + 1)).floor()
    top = (uniform[..., 3] * (height - box_height + 1)).floor()
    boxes = torch.stack([left, top, box_width, box_height], -1)
    first = fits.int().argmax(1)
    chosen = boxes[torch.arange(count), first]
    whole = torch.tensor([0.0, 0.0, width, height])
    return torch.where(fits.any(1)[:, None], chosen, whole)


def crop_and_resize(
    images: Tensor, boxes: Tensor, flips: Tensor, crop: Literal["published", "aligned"] = "published"
) -> Tensor:
    """Return each image's box, resized bilinearly to the full size and mirrored where `flips` says so.

    Both kinds of crop place the box by its corner pixels. The published one then samples as if the coordinates were
    those of pixel centres, which reaches a little beyond the box.
    """
    count, _, height, width = images.shape
    left, top, box_width, box_height = boxes.to(images).unbind(1)
    scale_x, scale_y = (box_width - 1) / (width - 1), (box_height - 1) / (height - 1)
    centre_x = 2 * (left + (box_width - 1) / 2) / (width - 1) - 1
    centre_y = 2 * (top + (box_height - 1) / 2) / (height - 1) - 1
    mirror = torch.where(flips.to(images.device), -1.0, 1.0).to(images)
    zero = torch.zeros_like(scale_x)
    affine = torch.stack([scale_x * mirror, zero, centre_x, zero, scale_y, centre_y], 1).view(count, 2, 3)
    corners, beyond = (False, "zeros") if crop == "published" else (True, "border")
    grid = F.affine_grid(affine, list(images.shape), align_corners=corners)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode=beyond, align_corners=corners)


def _jitter(images: Tensor, settings: ViewAugmentation, generator: torch.Generator) -> Tensor:
    """Brightness added, contrast multiplied, saturation and hue in HSV, in one random order a batch; clamped."""
    from kornia import enhance

    count = len(images)
    applied = torch.rand(count, generator=generator) < settings.jitter
    uniform = torch.rand(4, count, generator=generator).to(images.device) * 2 - 1
    brightness, hue = settings.brightness * uniform[0], settings.hue * 2 * torch.pi * uniform[3]
    contrast, saturation = 1 + settings.contrast * uniform[1], 1 + settings.saturation * uniform[2]
    operations: list[Callable[[Tensor], Tensor]] = [
        lambda views: (views + _per_image(brightness, views)).clamp(0, 1),
        lambda views: (views * _per_image(contrast, views)).clamp(0, 1),
        lambda views: enhance.adjust_saturation(views, saturation),
        lambda views: enhance.adjust_hue(views, hue),
    ]
    jittered = images
    for index in torch.randperm(4, generator=generator).tolist():
        if images.shape[1] == 3 or index < 2:
            jittered = operations[index](jittered)
    return torch.where(_per_image(applied, images), jittered, images)


def _per_image(values: Tensor, images: Tensor) -> Tensor:
    return values.to(images.device).view(-1, 1, 1, 1)
