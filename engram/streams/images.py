"""Decode image files to RGB pixels of one size, with antialiasing."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageOps

from engram.streams.dataset import Array, DataError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
LARGEST_FILE = 64 << 20
"""Largest number of bytes of an image file."""
MOST_PIXELS = 100_000_000
"""Images with more pixels are refused, because they would fill the memory."""


def is_image(name: str) -> bool:
    """Return whether a file name has the suffix of an image."""
    return name.lower().endswith(SUFFIXES)


def decode(content: bytes, size: int, name: str) -> Array:
    """Return the pixels of an image file as uint8 (3,size,size).

    Gray images become RGB. An image that is not square is cropped to the square in its middle.

    Args:
        content: bytes of the image file.
        size: pixels per side of the result.
        name: name of the file, for messages.
    """
    try:
        with Image.open(io.BytesIO(content)) as image:
            if image.width * image.height > MOST_PIXELS:
                raise DataError(f"{name} has {image.width}×{image.height} pixels, too many to decode: scale it down")
            return _pixels(_eight_bits(image).convert("RGB"), size)
    except DataError:
        raise
    except Exception as error:  # Pillow may raise anything on a damaged file
        raise DataError(f"{name} is damaged ({error}): obtain it again, or leave it out with skip_damaged") from error


def resize(images: Array, size: int) -> Array:
    """Return uint8 images (N,3,H,W) scaled to (N,3,size,size)."""
    if images.shape[-2:] == (size, size):
        return images
    return np.stack([_pixels(Image.fromarray(image.transpose(1, 2, 0)), size) for image in images])


def _eight_bits(image: Image.Image) -> Image.Image:
    """Return a gray image of 16 bits scaled to 8 bits, and other images as they are.

    Pillow would clip 16-bit values instead. Images of 32 bits raise a ValueError: their range of values is unknown.
    """
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"its pixels have 32 bits (mode {image.mode}), so the range of their values is unknown")
    return image


def _pixels(image: Image.Image, size: int) -> Array:
    if image.size != (size, size):
        image = ImageOps.fit(image, (size, size), Image.Resampling.BICUBIC)
    return np.asarray(image).transpose(2, 0, 1)
