"""Rows of numbers as images, and arrays of any range as images in [0,1]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engram.base.errors import InputError
from engram.base.validation import SMALLEST

Array = np.ndarray[Any, Any]


def shape_for(x: Array, asked: tuple[int, int, int] | None) -> tuple[int, int, int]:
    """Return the shape (C,H,W) of the images that rows become, or that images have.

    Rows of S·S or 3·S·S numbers, with S at least the smallest side, are flattened images of that shape. Other rows
    are laid out line by line in the smallest gray square they fit into, and the rest of it is black.

    Args:
        x: rows (N,D) or images (N,C,H,W).
        asked: the shape that the caller says rows have.
    """
    if x.ndim == 4:
        return int(x.shape[1]), int(x.shape[2]), int(x.shape[3])
    if x.ndim != 2:
        raise InputError(f"X has the shape {x.shape}: give rows (N,D) or images (N,C,H,W)")
    width = int(x.shape[1])
    if asked is not None:
        if math.prod(asked) != width:
            raise InputError(f"rows of {width} numbers are no images of the shape {tuple(asked)}: correct image_shape")
        return asked
    for channels in (1, 3):
        side = math.isqrt(width // channels)
        if side >= SMALLEST and channels * side * side == width:
            return channels, side, side
    side = max(SMALLEST, math.isqrt(width - 1) + 1)
    return 1, side, side


def value_range(x: Array) -> tuple[float, float]:
    """Return the values that become 0 and 1: 0 and 255 for uint8, 0 and 1 if all lie within, else the extremes."""
    if x.dtype == np.uint8:
        return 0.0, 255.0
    low, high = float(x.min()), float(x.max())
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, max(high, np.nextafter(low, np.inf)))


def to_images(x: Array, shape: tuple[int, int, int], limits: tuple[float, float]) -> Array:
    """Return rows or images as images of this shape, floats in [0,1]; what is outside of the limits is cut off."""
    low, high = limits
    scaled = ((x.astype(np.float64) - low) / (high - low)).clip(0, 1).astype(np.float32)
    if scaled.ndim == 4:
        return scaled
    missing = math.prod(shape) - scaled.shape[1]
    return np.pad(scaled, ((0, 0), (0, missing))).reshape(-1, *shape)
