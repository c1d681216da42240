"""Image files to pixels: RGB, one size, antialiased."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageOps

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
            return _pixels(_eight_bits(image).convert("RGB"), size)
    except DataError:
        raise
    except Exception as error:  # whatever Pillow's readers come upon in a damaged file
        raise DataError(f"{name} is damaged ({error}): obtain it again, or go on without it (skip_damaged)") from error


def resize(images: Array, size: int) -> Array:
    """(N, 3, size, size) of (N, 3, H, W) uint8 images."""
    if images.shape[-2:] == (size, size):
        return images
    return np.stack([_pixels(Image.fromarray(image.transpose(1, 2, 0)), size) for image in images])


def _eight_bits(image: Image.Image) -> Image.Image:
    """Grey images of 16 bits scaled to 8, which Pillow would cut off instead; wider ones have no agreed range."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"its pixels are 32 bits wide (mode {image.mode}), and what they range over is not said")
    return image


def _pixels(image: Image.Image, size: int) -> Array:
    if image.size != (size, size):
        image = ImageOps.fit(image, (size, size), Image.Resampling.BICUBIC)
    return np.asarray(image).transpose(2, 0, 1)
