"""How an image becomes bytes in the memory and back.

`float32` keeps pixels as they are, as the paper does. The others keep 8-bit values, so values outside [0,1] are
clamped: `uint8` as they are, `jpeg`, `webp` and `avif` compressed with a quality, written "avif(35)". "webp(50,16)"
also makes images smaller, 16 pixels a side, before they are compressed. At the same error, `avif` takes the fewest
bytes. `latent8` and `latent16` are for the outputs of a frozen net.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image, features
from torch import Tensor

from engram.base.errors import InputError
from engram.base.naming import suggest
from engram.base.part import Part
from engram.memory import avif, webp
from engram.memory.latent import Latent8, Latent16
from engram.persistence.state import Tree


class Codec(Protocol):
    """Encodes images into byte records (1-D uint8 tensors of any length, one per image) and decodes them."""

    name: str

    def record_bytes(self, shape: tuple[int, int, int]) -> int | None:
        """Return the bytes of every record, or None if they differ."""

    def encode(self, images: Tensor) -> list[Tensor]:
        """Return one record for each image."""

    def decode(self, records: Sequence[Tensor], shape: tuple[int, int, int]) -> Tensor:
        """Return the images of these records, float32 (N,C,H,W)."""


class Float32:
    """Stores pixels as they are, neither clamped nor quantized, as the paper does."""

    name = "float32"

    def record_bytes(self, shape: tuple[int, int, int]) -> int | None:
        return 4 * math.prod(shape)

    def encode(self, images: Tensor) -> list[Tensor]:
        return [image.contiguous().view(-1).view(torch.uint8).clone() for image in images.detach().float().cpu()]

    def decode(self, records: Sequence[Tensor], shape: tuple[int, int, int]) -> Tensor:
        return torch.stack(list(records)).view(torch.float32).view(-1, *shape)


class Uint8:
    """Stores one byte per value: a quarter of float32, and lossless for images that came as bytes."""

    name = "uint8"

    def record_bytes(self, shape: tuple[int, int, int]) -> int | None:
        return math.prod(shape)

    def encode(self, images: Tensor) -> list[Tensor]:
        return [pixels.reshape(-1).clone() for pixels in to_bytes(images)]

    def decode(self, records: Sequence[Tensor], shape: tuple[int, int, int]) -> Tensor:
        return torch.stack(list(records)).view(-1, *shape).float() / 255


class Compressed:
    """Stores images in a compressed format of Pillow, without metadata and without bytes that all files share.

    Args:
        kind: name of the format: jpeg, webp or avif.
        quality: quality from 1 to 100.
        side: pixels per side that images are stored with, if fewer than they have; they are enlarged when they are
            read. If None, all their pixels are stored.
    """

    def __init__(self, kind: str, quality: int, side: int | None = None) -> None:
        if not 1 <= quality <= 100:
            raise InputError(f"{kind}({quality}): the quality lies between 1 and 100")
        if not features.check(_FEATURES.get(kind, kind)):
            raise InputError(f"this Pillow cannot write {kind}: install one that can with pip install 'pillow>=11.3'")
        if side is not None and side < SMALLEST_SIDE:
            raise InputError(f"{kind}({quality},{side}): images are stored with at least {SMALLEST_SIDE} pixels a side")
        self.kind, self.quality, self.side = kind, quality, side
        self.name = f"{kind}({quality})" if side is None else f"{kind}({quality},{side})"

    def with_side(self, side: int) -> Compressed:
        """Return the same codec for images of this many pixels per side."""
        return Compressed(self.kind, self.quality, side)

    def record_bytes(self, shape: tuple[int, int, int]) -> int | None:
        return None

    def encode(self, images: Tensor) -> list[Tensor]:
        records = []
        for pixels in to_bytes(images):
            array = pixels.permute(1, 2, 0).numpy()
            file = io.BytesIO()
            picture = Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array)
            stored = self._stored_size(picture.size)
            if stored != picture.size:
                picture = picture.resize(stored, Image.Resampling.LANCZOS)
            picture.save(file, self.kind, quality=self.quality, **_SMALLEST[self.kind])
            content = file.getvalue()
            record = _BARE[self.kind].bare(content, *stored) if self.kind in _BARE else content
            records.append(torch.frombuffer(bytearray(record), dtype=torch.uint8))
        return records

    def decode(self, records: Sequence[Tensor], shape: tuple[int, int, int]) -> Tensor:
        with avif.in_one_thread():
            return torch.stack([self._picture(record, shape) for record in records]).float() / 255

    def _picture(self, record: Tensor, shape: tuple[int, int, int]) -> Tensor:
        channels, height, width = shape
        stored = self._stored_size((width, height))
        content = record.numpy().tobytes()
        file = io.BytesIO(_BARE[self.kind].whole(content, *stored) if self.kind in _BARE else content)
        with Image.open(file, formats=[self.kind]) as picture:
            if picture.size != stored:
                raise ValueError(
                    f"a stored picture has {picture.width}×{picture.height} pixels, not {stored[0]}×{stored[1]}"
                )
            plain = picture.convert("L" if channels == 1 else "RGB")
        if stored != (width, height):
            plain = plain.resize((width, height), Image.Resampling.BICUBIC)
        return torch.from_numpy(np.array(plain)).view(height, width, channels).permute(2, 0, 1)

    def _stored_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return width and height of the stored picture of an image of this width and height."""
        if self.side is None:
            return size
        return min(self.side, size[0]), min(self.side, size[1])


class AutoQuality(Part):
    """Stores images as AVIF with a quality that the memory lowers when its classes have too little room.

    Pictures can be read whatever quality they were made with.
    """

    name = "avif(auto)"
    qualities = (70, 50, 35)
    """From the first images on, to the lowest."""

    def __init__(self) -> None:
        self.add_state("level", 0)
        self.level: int
        """Which of the qualities it is at."""
        self._codecs = [Compressed("avif", quality) for quality in self.qualities]

    @property
    def can_lower(self) -> bool:
        return self.level + 1 < len(self.qualities)

    def lower(self) -> None:
        """Encode with the next lower quality from now on."""
        self.level += 1

    def record_bytes(self, shape: tuple[int, int, int]) -> int | None:
        return None

    def encode(self, images: Tensor) -> list[Tensor]:
        return self._codecs[self.level].encode(images)

    def decode(self, records: Sequence[Tensor], shape: tuple[int, int, int]) -> Tensor:
        return self._codecs[self.level].decode(records, shape)

    def load_state(self, tree: Tree) -> None:
        super().load_state(tree)
        if not 0 <= self.level < len(self.qualities):
            raise ValueError(f"{self.name} has no quality number {self.level}")


SMALLEST_SIDE = 4
"""Smallest number of pixels per side that images are stored with."""


_SMALLEST: dict[str, dict[str, Any]] = {
    "jpeg": {"optimize": True},
    "webp": {"method": 4},
    "avif": {"speed": 6, "subsampling": "4:2:0", "max_threads": 1},
}
"""Options that make the files of each format small at little cost."""
_BARE = {"webp": webp, "avif": avif}
"""Modules that take out of the files of a format what all of them share, and put it back."""
_FEATURES = {"jpeg": "jpg"}
"""Names of the formats among Pillow's features, where they differ."""


def to_bytes(images: Tensor) -> Tensor:
    """Return pixels as 8-bit values, after clamping them to [0,1]."""
    return (images.detach().float().cpu().clamp(0, 1) * 255).round().to(torch.uint8)


CODECS: dict[str, Callable[[int], Codec]] = {
    "float32": lambda quality: Float32(),
    "uint8": lambda quality: Uint8(),
    "jpeg": lambda quality: Compressed("jpeg", quality),
    "webp": lambda quality: Compressed("webp", quality),
    "avif": lambda quality: Compressed("avif", quality),
    "latent8": lambda quality: Latent8(),
    "latent16": lambda quality: Latent16(),
}
"""Every codec by its name, as a function of the quality. An entry added here can be chosen by `codec`."""
DEFAULT_QUALITY = {"jpeg": 75, "webp": 50, "avif": 35}


def parse_codec(text: str) -> Codec:
    """Return the codec that a name such as "float32", "webp(50)" or "webp(50,16)" stands for.

    The numbers are the quality and the pixels per side of the stored picture; "webp" alone means webp(50). "avif(auto)"
    chooses the quality.
    """
    if text == AutoQuality.name:
        return AutoQuality()
    match = re.fullmatch(r"(\w+)(?:\((\d{1,3})(?:, ?(\d{1,4}))?\))?", text)
    if not match or match[1] not in CODECS:
        raise InputError(f"unknown codec {text!r}{suggest(match[1] if match else text, list(CODECS))}")
    if match[2] is not None and match[1] not in DEFAULT_QUALITY:
        raise InputError(f"codec {text!r}: {match[1]} has no quality")
    codec = CODECS[match[1]](int(match[2]) if match[2] else DEFAULT_QUALITY.get(match[1], 0))
    return codec.with_side(int(match[3])) if match[3] and isinstance(codec, Compressed) else codec
