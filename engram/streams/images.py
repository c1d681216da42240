"""Image files to pixels: RGB, one size, antialiased."""

from __future__ import annotations

import io
import struct

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from engram.streams.dataset import Array, DataError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
LARGEST_FILE = 64 << 20
MOST_PIXELS = 100_000_000


def is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def decode(content: bytes, size: int, name: str) -> Array:
    """(3, size, size) uint8. Grey images become RGB; of an oblong one the middle square is taken."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            if image.width * image.height > MOST_PIXELS:
                raise DataError(f"{name} has {image.width}×{image.height} pixels: refused, it would fill the memory")
            return _pixels(image.convert("RGB"), size)
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, struct.error) as error:
        raise DataError(f"{name} is damaged ({error}): obtain it again, or go on without it (skip_damaged)") from error


def resize(images: Array, size: int) -> Array:
    """(N, 3, size, size) of (N, 3, H, W) uint8 images."""
    if images.shape[-2:] == (size, size):
        return images
    return np.stack([_pixels(Image.fromarray(image.transpose(1, 2, 0)), size) for image in images])


def _pixels(image: Image.Image, size: int) -> Array:
    if image.size != (size, size):
        image = ImageOps.fit(image, (size, size), Image.Resampling.BICUBIC)
    return np.asarray(image).transpose(2, 0, 1)
