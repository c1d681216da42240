"""RandAugment as repeated augmented rehearsal uses it (Cubuk et al., 2020; Zhang et al., 2022): one of
sixteen operations per image, all at magnitude 14 of 30, on 8-bit values.

Operation, sign and place are drawn here; kornia applies those operations that it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.base.interfaces import Augmentation
from engram.base.settings import NonNegative, Range

CUTOUT_COLOR = (125 / 255, 123 / 255, 114 / 255)
SIZE_OF_PUBLISHED_RANGES = 331
"""Pixels a side of the images that the published translation was made for."""
MOST_OPERATIONS = 100


class RandAugment(Augmentation):
    """Applies random operations to each image, after clamping it to [0,1] and rounding it to 8-bit values.

    Args:
        n_ops: number of operations applied in sequence (the paper states 1; the released code in effect applies 3).
        degrees: angle of rotation.
        shear: how far a shear moves an edge, as a share of the image's side.
        translate: pixels of translation; at 32 px the published 46.7 blanks the image.
        scale_translation: scale the translation as if the pixels were meant for an image of 331 px, so that small
            images stay visible. If not given: yes, but not on the paper's streams.
        factor: factor on color, contrast, brightness and sharpness; 1 changes nothing.
        cutout: side of the gray square in pixels.
    """

    published = MappingProxyType({"scale_translation": False})

    def __init__(
        self,
        n_ops: Annotated[int, Range(least=0, most=MOST_OPERATIONS)] = 1,
        degrees: NonNegative = 14.0,
        shear: NonNegative = 0.14,
        translate: NonNegative = 46.7,
        scale_translation: bool | None = None,
        factor: NonNegative = 0.94,
        cutout: NonNegative = 18.7,
    ) -> None:
        self.n_ops, self.degrees, self.shear, self.factor, self.cutout = n_ops, degrees, shear, factor, cutout
        self.translate, self.scale_translation = translate, scale_translation

    def augment(self, images: Tensor, generator: torch.Generator) -> Tensor:
        images = to_eight_bits(images)
        for _ in range(self.n_ops):
            images = self._one_operation(images, generator)
        return images

    def _one_operation(self, images: Tensor, generator: torch.Generator) -> Tensor:
        count = len(images)
        chosen = torch.randint(len(OPERATIONS), (count,), generator=generator)
        signs = (torch.randint(2, (count,), generator=generator) * 2 - 1).to(images)
        places = torch.rand(count, 2, generator=generator).to(images)
        changed = images.clone()
        for index in chosen.unique().tolist():
            mine = (chosen == index).to(images.device)
            changed[mine] = OPERATIONS[index](self, images[mine], signs[mine], places[mine])
        return to_eight_bits(changed)

    def translation(self, side: int) -> float:
        """Return the pixels by which an image of this side is moved."""
        if self.scale_translation is False:
            return self.translate
        return self.translate * side / SIZE_OF_PUBLISHED_RANGES


def to_eight_bits(images: Tensor) -> Tensor:
    return (images.clamp(0, 1) * 255).round() / 255


def warp(images: Tensor, matrices: Tensor) -> Tensor:
    """Sample each image at the positions that its matrix (2,3) gives, counted from the center; zeros from outside."""
    height, width = images.shape[-2:]
    scaled = matrices.clone()
    scaled[:, 0, 1] *= height / width
    scaled[:, 1, 0] *= width / height
    scaled[:, 0, 2] *= 2 / width
    scaled[:, 1, 2] *= 2 / height
    grid = F.affine_grid(scaled, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="nearest", padding_mode="zeros", align_corners=False)


def _matrices(images: Tensor, **entries: Tensor) -> Tensor:
    """Return identity matrices with the given entries changed: xx, xy, dx, yx, yy, dy."""
    matrices = torch.tensor([[1.0, 0, 0], [0, 1, 0]]).to(images).repeat(len(images), 1, 1)
    places = {"xx": (0, 0), "xy": (0, 1), "dx": (0, 2), "yx": (1, 0), "yy": (1, 1), "dy": (1, 2)}
    for name, values in entries.items():
        matrices[:, places[name][0], places[name][1]] = values
    return matrices


Operation = Callable[[RandAugment, Tensor, Tensor, Tensor], Tensor]


def autocontrast(_: RandAugment, images: Tensor, signs: Tensor, places: Tensor) -> Tensor:
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    return torch.where(high > low, (images - low) / (high - low).clamp_min(1e-6), images)


def equalize(_: RandAugment, images: Tensor, signs: Tensor, places: Tensor) -> Tensor:
    from kornia.enhance import equalize as apply

    return apply(images)


def invert(_: RandAugment, images: Tensor, signs: Tensor, places: Tensor) -> Tensor:
    return 1 - images


def rotate(settings: RandAugment, images: Tensor, signs: Tensor, places: Tensor) -> Tensor:
    angles = signs * math.radians(settings.degrees)
    return warp(images, _matrices(images, xx=angles.cos(), xy=-angles.sin(), yx=angles.sin(), yy=angles.cos()))


def posterize(_: RandAugment, images: Tensor, signs: Tensor, places: Tensor) -> Tensor:
    """Return the images with one bit per value."""
    return (images * 255 >= 128).to(images) * 128 / 255


def solarize(_: RandAugment, images: Tensor, signs: Tensor, places: Tensor) -> Tensor:
    from kornia.enhance import solarize as apply

    return apply(images, thresholds=119.5 / 255)


def solarize_add(_: RandAugment, images: Tensor, signs: Tensor, places: Tensor) -> Tensor:
    from kornia.enhance import solarize as apply

    return apply(images, thresholds=128 / 255, additions=51.3 / 255)


def color(settings: RandAugment, images: Tensor, signs: Tensor, places: Tensor) -> Tensor:
    from kornia.enhance import adjust_saturation_with_gray_subtraction as apply

    return apply(images, settings.factor) if images.shape[1] == 3 else images


def contrast(settings: RandAugment, images: Tensor, signs: Tensor, places: Tensor) -> Tensor:
    from kornia.enhance import adjust_contrast_with_mean_subtraction as apply

    return apply(images, settings.factor)


def brightness(settings: RandAugment, images: Tensor, signs: Tensor, places: Tensor) -> Tensor:
    return images * settings.factor


def sharpness(settings: RandAugment, images: Tensor, signs: Tensor, places: Tensor) -> Tensor:
    from kornia.enhance import sharpness as apply

    return apply(images, settings.factor)


def shear_x(settings: RandAugment, images: Tensor, signs: Tensor, places: Tensor) -> Tensor:
    """Move rows sideways by how far they are from the top; the top-left corner stays."""
    slopes = signs * settings.shear
    return warp(images, _matrices(images, xy=slopes, dx=slopes * images.shape[-2] / 2))


def shear_y(settings: RandAugment, images: Tensor, signs: Tensor, places: Tensor) -> Tensor:
    """Move columns up or down by how far they are from the left; the top-left corner stays."""
    slopes = signs * settings.shear
    return warp(images, _matrices(images, yx=slopes, dy=slopes * images.shape[-1] / 2))


def translate_x(settings: RandAugment, images: Tensor, signs: Tensor, places: Tensor) -> Tensor:
    return warp(images, _matrices(images, dx=signs * settings.translation(images.shape[-1])))


def translate_y(settings: RandAugment, images: Tensor, signs: Tensor, places: Tensor) -> Tensor:
    return warp(images, _matrices(images, dy=signs * settings.translation(images.shape[-2])))


def cutout(settings: RandAugment, images: Tensor, signs: Tensor, places: Tensor) -> Tensor:
    """Put a gray square around a uniformly drawn point.

    As published, it is moved inward where it would leave the top or the left edge, and cut off at the other two. It
    covers every pixel from its truncated first corner to its truncated last corner.
    """
    height, width = images.shape[-2:]

    def inside(centers: Tensor, side: int) -> Tensor:
        first = (centers * side - settings.cutout / 2).clamp_min(0).trunc()
        pixels = torch.arange(side, device=images.device)
        return (pixels >= first) & (pixels <= (first + settings.cutout).trunc())

    inside_rows, inside_columns = inside(places[:, :1], height), inside(places[:, 1:], width)
    inside_both = (inside_rows[:, :, None] & inside_columns[:, None, :])[:, None]
    fill = images.new_tensor(CUTOUT_COLOR).view(1, 3, 1, 1)
    return torch.where(inside_both, fill if images.shape[1] == 3 else fill.mean(1, keepdim=True), images)


OPERATIONS: tuple[Operation, ...] = (
    autocontrast,
    equalize,
    invert,
    rotate,
    posterize,
    solarize,
    solarize_add,
    color,
    contrast,
    brightness,
    sharpness,
    shear_x,
    shear_y,
    cutout,
    translate_x,
    translate_y,
)
