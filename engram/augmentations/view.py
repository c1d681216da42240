"""The second view of contrastive training: resized crop, flip, color jitter and gray, drawn for each image.

Parameters are drawn here, from a given generator; kornia's color operations apply them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.base.settings import NonNegative, Positive, Share

CROP_ATTEMPTS = 10


@dataclass(frozen=True)
class ViewAugmentation:
    """Probabilities and ranges of the augmentation.

    Args:
        crop: how a crop is drawn and resized. "published" does what the library of SCR's time did (kornia 0.4.1): its
            sides are truncated to whole pixels and smaller than the image's, pixels are sampled at their centers, and
            zeros lie beyond the edge. "aligned" rounds the sides, lets a crop be as large as the image, and keeps the
            corner pixels in place. "none" crops nothing.
        crop_scale: smallest and largest share of the image's area that a crop takes.
        crop_ratio: smallest and largest aspect ratio of a crop, width over height.
        flip: probability of a horizontal flip.
        jitter: probability of color jitter.
        jitter_kind: what the jitter does with its numbers. "additive" is that of SCR's library (kornia 0.4.1): it adds
            brightness, multiplies pixels by the contrast and the saturation of HSV by the saturation. "multiplicative"
            is torchvision's: it multiplies pixels by the brightness, their distance from the image's mean gray by the
            contrast, and their distance from their own gray by the saturation.
        brightness: largest number added to all pixels or subtracted from them, or largest change of a factor of 1.
        contrast: largest change of the contrast's factor of 1.
        saturation: largest change of the saturation's factor of 1.
        hue: largest turn of the hue, as a share of a full turn.
        gray: probability of removing all color.
    """

    crop: Literal["published", "aligned", "none"] = "published"
    crop_scale: tuple[Share, Share] = (0.2, 1.0)
    crop_ratio: tuple[Positive, Positive] = (3 / 4, 4 / 3)
    flip: Share = 0.5
    jitter: Share = 0.8
    jitter_kind: Literal["additive", "multiplicative"] = "additive"
    brightness: NonNegative = 0.4
    contrast: NonNegative = 0.4
    saturation: NonNegative = 0.4
    hue: NonNegative = 0.1
    gray: Share = 0.2


UNCHANGED = ViewAugmentation(crop="none", flip=0.0, jitter=0.0, gray=0.0)
"""The view of an image that is the image itself, whatever the settings of what it leaves out."""


def augment_view(
    images: Tensor, settings: ViewAugmentation, generator: torch.Generator, size: int | None = None
) -> Tensor:
    """Return an augmented copy of each image, with `size` pixels per side or as many as the image has.

    Images of one channel skip the operations on color.
    """
    if settings == UNCHANGED:
        return _resized(images, size)
    count, channels, height, width = images.shape
    boxes = draw_crops(count, height, width, settings, generator) if settings.crop != "none" else None
    flips = torch.rand(count, generator=generator) < settings.flip
    if boxes is None or settings.crop == "none":
        views = _resized(torch.where(_per_image(flips, images), images.flip(3), images), size)
    else:
        views = crop_and_resize(images, boxes, flips, settings.crop, size)
    views = _jitter(views, settings, generator)
    gray = torch.rand(count, generator=generator) < settings.gray
    if channels == 3:
        views = torch.where(_per_image(gray, views), _gray(views), views)
    return views


def _resized(images: Tensor, size: int | None) -> Tensor:
    """Return whole images with `size` pixels per side, by the mean of the pixels that each one covers."""
    return images if size in (None, images.shape[-1]) else F.interpolate(images, size=size, mode="area")


def draw_crops(count: int, height: int, width: int, settings: ViewAugmentation, generator: torch.Generator) -> Tensor:
    """Return integer boxes (count,4): left, top, width, height. It is the whole image if none of ten draws fit."""
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
    images: Tensor,
    boxes: Tensor,
    flips: Tensor,
    crop: Literal["published", "aligned"] = "published",
    size: int | None = None,
) -> Tensor:
    """Return each image's box, resized bilinearly to `size` or to the full size, and mirrored where `flips` says so.

    Both kinds of crop place the box by its corner pixels. The published one then samples as if the coordinates were
    those of pixel centers, which reaches a little beyond the box.
    """
    count, channels, height, width = images.shape
    left, top, box_width, box_height = boxes.to(images).unbind(1)
    scale_x, scale_y = (box_width - 1) / (width - 1), (box_height - 1) / (height - 1)
    center_x = 2 * (left + (box_width - 1) / 2) / (width - 1) - 1
    center_y = 2 * (top + (box_height - 1) / 2) / (height - 1) - 1
    mirror = torch.where(flips.to(images.device), -1.0, 1.0).to(images)
    zero = torch.zeros_like(scale_x)
    affine = torch.stack([scale_x * mirror, zero, center_x, zero, scale_y, center_y], 1).view(count, 2, 3)
    corners, beyond = (False, "zeros") if crop == "published" else (True, "border")
    grid = F.affine_grid(affine, [count, channels, size or height, size or width], align_corners=corners)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode=beyond, align_corners=corners)


def _jitter(images: Tensor, settings: ViewAugmentation, generator: torch.Generator) -> Tensor:
    """Change brightness, contrast, saturation and hue, in one random order per batch; clamp after each."""
    count = len(images)
    applied = torch.rand(count, generator=generator) < settings.jitter
    uniform = torch.rand(4, count, generator=generator).to(images.device) * 2 - 1
    ranges = (settings.brightness, settings.contrast, settings.saturation, settings.hue)
    changes = [most * drawn for most, drawn in zip(ranges, uniform, strict=True)]
    operations = (additive_jitter if settings.jitter_kind == "additive" else multiplicative_jitter)(*changes)
    jittered = images
    for index in torch.randperm(4, generator=generator).tolist():
        if images.shape[1] == 3 or index < 2:
            jittered = operations[index](jittered)
    return torch.where(_per_image(applied, images), jittered, images)


Operation = Callable[[Tensor], Tensor]


def additive_jitter(brightness: Tensor, contrast: Tensor, saturation: Tensor, hue: Tensor) -> list[Operation]:
    """Return the four operations of the additive jitter, given one change per image. They expect three channels.

    The first two also take one channel.
    """
    from kornia import enhance

    return [
        lambda views: (views + _per_image(brightness, views)).clamp(0, 1),
        lambda views: (views * _per_image(1 + contrast, views)).clamp(0, 1),
        lambda views: enhance.adjust_saturation(views, 1 + saturation),
        lambda views: enhance.adjust_hue(views, 2 * torch.pi * hue),
    ]


def multiplicative_jitter(brightness: Tensor, contrast: Tensor, saturation: Tensor, hue: Tensor) -> list[Operation]:
    """Return the four operations of the multiplicative jitter, in the same form."""
    from kornia import enhance

    def scaled(views: Tensor, change: Tensor, center: Tensor | float) -> Tensor:
        factor = _per_image(1 + change, views).clamp_min(0)
        return (center + factor * (views - center)).clamp(0, 1)

    return [
        lambda views: scaled(views, brightness, 0.0),
        lambda views: scaled(views, contrast, _gray(views).mean((1, 2, 3), keepdim=True)),
        lambda views: scaled(views, saturation, _gray(views)),
        lambda views: enhance.adjust_hue(views, 2 * torch.pi * hue),
    ]


def _gray(images: Tensor) -> Tensor:
    """Return the images without color, in one channel."""
    if images.shape[1] == 1:
        return images
    return (images * images.new_tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)


def _per_image(values: Tensor, images: Tensor) -> Tensor:
    return values.to(images.device).view(-1, 1, 1, 1)
