"""Decode image files to RGB pixels of one size, with antialiasing."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Literal, TypeAlias

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from engram.streams.dataset import Array, DataError

FORMATS = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "PNG": (".png",),
    "BMP": (".bmp",),
    "WEBP": (".webp",),
    "GIF": (".gif",),
    "TIFF": (".tif", ".tiff"),
    "PPM": (".ppm", ".pgm"),
    "JPEG2000": (".jp2",),
    "AVIF": (".avif",),
    "TGA": (".tga",),
    "HEIF": (".heic", ".heif", ".hif"),
}
"""The formats that are read, by Pillow's names, each with the suffixes of its files.

Others are never tried: some run other programs, such as Ghostscript for EPS.
"""
SUFFIXES = tuple(suffix for suffixes in FORMATS.values() for suffix in suffixes)
LARGEST_FILE = 64 << 20
"""Largest number of bytes of an image file."""
MOST_PIXELS = 50_000_000
"""Images with more pixels are refused, because they would fill the memory. All that are decoded at a time have no more
than this together. A pixel that may be transparent counts twice, because it is laid over white."""
BLOCK = 64 << 20
"""Bytes that Pillow reserves at a time. Blocks of its default size stay reserved after use, in every thread."""
HEAD = 16
"""Number of bytes in which `looks_like_image` finds the mark of a format."""

Fit: TypeAlias = Literal["crop", "pad", "stretch"]
"""How an image that is not square becomes one: the square in its middle, black bars around it, or stretched."""

Image.core.set_block_size(BLOCK)  # type: ignore[attr-defined]


def is_image(name: str) -> bool:
    """Return whether a file name has the suffix of an image."""
    return name.lower().endswith(SUFFIXES)


def looks_like_image(head: bytes) -> bool:
    """Return whether a file begins as an image does; for files without a suffix."""
    marks = (b"\xff\xd8\xff", b"\x89PNG\r\n", b"BM", b"GIF8", b"II*\0", b"MM\0*", b"P5\n", b"P6\n", b"\0\0\0\x0cjP  ")
    return head.startswith(marks) or head[8:12] == b"WEBP" or head[4:12] in (b"ftypavif", b"ftypheic", b"ftypmif1")


def decode(content: bytes, size: int, name: str, fit: Fit = "crop") -> Array:
    """Return the pixels of an image file as uint8 (3,size,size).

    It is turned upright as its EXIF data say. Gray images become RGB, and what is transparent becomes white.

    Args:
        content: bytes of the image file.
        size: pixels per side of the result.
        name: name of the file, for messages.
        fit: how an image that is not square becomes one.
    """
    formats = [kind for kind in _formats() if kind != "TGA" or name.lower().endswith(FORMATS[kind])]
    try:
        with Image.open(io.BytesIO(content), formats=formats) as image:
            count = image.width * image.height * (2 if image.has_transparency_data else 1)
            if count > MOST_PIXELS:
                raise DataError(f"{name} has {image.width}×{image.height} pixels, too many to decode: scale it down")
            with _allowance.of(count):
                return _pixels(to_rgb(_upright(image)), size, fit)
    except DataError:
        raise
    except Exception as error:  # Pillow may raise anything on a damaged file
        if name.lower().endswith(FORMATS["HEIF"]) and "HEIF" not in _formats():
            raise DataError(
                f"{name} is a HEIC image, which cannot be read here: `pip install pillow-heif`, convert it to JPEG, or "
                "leave it out with skip_damaged"
            ) from error
        reason = "it is not an image" if isinstance(error, UnidentifiedImageError) else error
        raise DataError(f"{name} is damaged ({reason}): obtain it again, or leave it out with skip_damaged") from error


def resize(images: Array, size: int) -> Array:
    """Return uint8 images (N,3,H,W) scaled to (N,3,size,size)."""
    if images.shape[-2:] == (size, size):
        return images
    return np.stack([_pixels(Image.fromarray(image.transpose(1, 2, 0)), size) for image in images])


def to_pixels(image: Image.Image, size: int | None, fit: Fit = "crop") -> Array:
    """Return the pixels of an opened image as uint8 (3,size,size), or (3,H,W) in its own size if `size` is None."""
    converted = to_rgb(_upright(image))
    return np.asarray(converted).transpose(2, 0, 1) if size is None else _pixels(converted, size, fit)


def to_rgb(image: Image.Image) -> Image.Image:
    """Return an image as RGB; what is transparent becomes white.

    Gray images of 16 bits are scaled to 8 bits, because Pillow would clip their values. Images of 32 bits raise a
    ValueError: their range of values is unknown.
    """
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise ValueError(f"its pixels have 32 bits (mode {image.mode}), so the range of their values is unknown")
    if not image.has_transparency_data:
        return image.convert("RGB")
    layered = image if image.mode == "RGBA" else image.convert("RGBA")
    white = Image.new("RGB", image.size, "white")
    white.paste(layered, mask=layered.getchannel("A"))
    return white


@cache
def _formats() -> list[str]:
    """Return those of `FORMATS` that the installed Pillow can read. TGA has no mark, so only its suffix tells it."""
    Image.init()
    with suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener()
    return [kind for kind in FORMATS if kind in Image.OPEN]


def _upright(image: Image.Image) -> Image.Image:
    """Return an image turned as its EXIF data say. EXIF data that cannot be read say nothing."""
    with suppress(Exception):  # Pillow may raise anything on damaged data
        if image.getexif().get(ExifTags.Base.Orientation, 1) != 1:
            return ImageOps.exif_transpose(image)
    return image


def _pixels(image: Image.Image, size: int, fit: Fit = "crop") -> Array:
    if image.size != (size, size):
        image = _FITTED[fit](image, (size, size), Image.Resampling.BICUBIC)
    return np.asarray(image).transpose(2, 0, 1)


_FITTED: dict[Fit, Callable[[Image.Image, tuple[int, int], Image.Resampling], Image.Image]] = {
    "crop": ImageOps.fit,
    "pad": ImageOps.pad,
    "stretch": lambda image, size, method: image.resize(size, method),
}


class _Allowance:
    """Lets threads decode at the same time as long as their images have at most `MOST_PIXELS` pixels together."""

    def __init__(self) -> None:
        self.used = 0
        self.freed = threading.Condition()

    @contextmanager
    def of(self, pixels: int) -> Iterator[None]:
        """Wait until `pixels` more may be decoded, and hold them for the block."""
        with self.freed:
            self.freed.wait_for(lambda: self.used + pixels <= MOST_PIXELS)
            self.used += pixels
        try:
            yield
        finally:
            with self.freed:
                self.used -= pixels
                self.freed.notify_all()


_allowance = _Allowance()
