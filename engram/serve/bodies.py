"""What a request holds: images and labels as JSON, as a form with files, or as an .npz file. Nothing is unpickled."""

from __future__ import annotations

import base64
import io
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from engram.base.errors import InputError
from engram.persistence.parsing import parse_json
from engram.serve.batches import Array
from engram.serve.limits import ServeLimits
from engram.serve.refusal import Refusal
from engram.streams.images import Fit, decode

PICTURES = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
"""Formats of pictures, by Pillow's names."""
DTYPES: dict[str, np.dtype[Any]] = {"uint8": np.dtype(np.uint8), "float32": np.dtype("<f4")}
"""Types of the numbers in an array of images."""
NPY_HEAD = re.compile(
    rb"\{'descr': '(?P<dtype>[<>|=]?[a-zA-Z]\d{1,9})', 'fortran_order': (?P<fortran>True|False), "
    rb"'shape': \((?P<shape>(?:\d{1,10}, ?)*(?:\d{1,10})?)\),? ?\} *\n?"
)
"""The header of an array in an .npz file, as NumPy writes it. Python is not asked to read it."""
LONGEST_HEAD = 4096
"""Most bytes of this header."""
DAMAGED = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, KeyError, NotImplementedError, RuntimeError)
"""What reading a zip file raises if it is damaged, encrypted or of an unknown kind, beside a ValueError."""
MOST_MEMBERS = 8
"""Most arrays in an .npz file."""
LARGEST_SIZE = 1 << 31
"""Bound of a number in the shape of an array."""


@dataclass(frozen=True)
class ImageFacts:
    """What pictures and labels of a request become.

    Args:
        shape: shape (C,H,W) of every image.
        fit: how a picture that is not square becomes so.
        integer_labels: whether the learner's labels are integers.
    """

    shape: tuple[int, int, int]
    fit: Fit
    integer_labels: bool


def from_json(content: bytes, facts: ImageFacts, limits: ServeLimits) -> tuple[Array, Any]:
    """Return images and labels of a JSON text; the labels are None if it has none.

    Args:
        content: `{"images": ..., "labels": [...]}`; the images are a list of base64 pictures, or an object with
            `shape`, `dtype` and base64 `data`.
        shape: what pictures are brought to (C,H,W).
        limits: limits on requests.
    """
    try:
        body = parse_json(content)
    except ValueError as error:
        raise Refusal(422, f"the body is no JSON text: {str(error)[:200]}") from error
    if not isinstance(body, dict) or "images" not in body or not body.keys() <= {"images", "labels"}:
        raise Refusal(422, 'the body must be {"images": ..., "labels": [...]}')
    images = body["images"]
    if isinstance(images, list):
        pictures = [_unpack(image, f"image {index}") for index, image in enumerate(images)]
        return from_pictures(pictures, facts, limits), body.get("labels")
    if not isinstance(images, dict) or images.keys() != {"shape", "dtype", "data"}:
        raise Refusal(422, '"images" must be a list of base64 pictures, or {"shape": [...], "dtype": ..., "data": ...}')
    return _as_images(_unpack(images["data"], "data"), images["shape"], images["dtype"], limits), body.get("labels")


def from_pictures(pictures: Sequence[bytes], facts: ImageFacts, limits: ServeLimits) -> Array:
    """Return pictures (PNG, JPEG, WebP, GIF or BMP files) as uint8 images of one shape (C,H,W)."""
    _require_count(len(pictures), limits)
    count = sum(_pixel_count(content, index) for index, content in enumerate(pictures))
    if count > limits["most_pixels"]:
        raise Refusal(
            413,
            f"the pictures have {count:,} pixels together, at most {limits['most_pixels']:,} are allowed: scale them",
        )
    return np.stack([_picture(content, index, facts) for index, content in enumerate(pictures)])


def from_npz(content: bytes, limits: ServeLimits) -> tuple[Array, Any]:
    """Return the arrays `images` and `labels` of an .npz file; the labels are None if it has none."""
    try:
        arrays = _members(content, limits)
    except ValueError as error:
        raise Refusal(422, f"the body is no .npz file: {str(error)[:100]}") from error
    except DAMAGED as error:
        raise Refusal(422, "the body is no .npz file: it is damaged") from error
    if "images" not in arrays or not arrays.keys() <= {"images", "labels"}:
        raise Refusal(422, "an .npz file must hold an array named images, and one named labels")
    raw, shape, dtype = arrays["images"]
    images = _as_images(raw, shape, dtype.name if dtype.isnative else str(dtype), limits)
    if "labels" not in arrays:
        return images, None
    raw, shape, dtype = arrays["labels"]
    if dtype.kind not in "iuU" or len(shape) != 1 or shape[0] > limits["most_images"]:
        raise Refusal(422, f"labels are {dtype} {shape}: give one integer or string an image")
    try:
        return images, np.frombuffer(raw, dtype).tolist()
    except Exception as error:  # numbers that are no characters
        raise Refusal(422, "labels are no valid text") from error


def form_labels(texts: Sequence[str], facts: ImageFacts) -> list[int | str]:
    """Return the labels of a form, which has only texts, in the kind that the learner knows."""
    if not facts.integer_labels:
        return list(texts)
    try:
        return [int(text[:30]) for text in texts]
    except ValueError as error:
        raise Refusal(422, "this learner's labels are integers: give an integer for every image") from error


def _pixel_count(content: bytes, index: int) -> int:
    """Return how many pixels a picture says it has, without decoding it."""
    try:
        with Image.open(io.BytesIO(content), formats=PICTURES) as opened:
            return opened.width * opened.height
    except Exception as error:  # Pillow may raise anything on a damaged file
        raise _unreadable(index) from error


def _picture(content: bytes, index: int, facts: ImageFacts) -> Array:
    try:
        pixels = decode(content, facts.shape[1], f"image {index}", facts.fit)
    except InputError as error:
        raise _unreadable(index) from error
    if facts.shape[0] == 3:
        return pixels
    return np.asarray(Image.fromarray(pixels.transpose(1, 2, 0)).convert("L"))[None]


def _unreadable(index: int) -> Refusal:
    return Refusal(422, f"image {index} cannot be read: send PNG, JPEG, WebP, GIF or BMP files")


def _as_images(raw: bytes, shape: Any, dtype: Any, limits: ServeLimits) -> Array:
    """Return bytes as images, or raise a `Refusal` if their shape or type is not that of images."""
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise Refusal(422, f"images are {str(dtype)[:20]}: give uint8, or float32 in [0,1]")
    sizes = list(shape) if isinstance(shape, list | tuple) else []
    if len(sizes) != 4 or any(type(size) is not int or not 0 < size < LARGEST_SIZE for size in sizes):
        raise Refusal(422, f"the shape of images is {str(shape)[:40]}: give (N,C,H,W), at least one of each")
    _require_count(sizes[0], limits)
    if max(sizes[2:]) > limits["most_side"]:
        raise Refusal(
            413, f"images have {sizes[2]}×{sizes[3]} pixels, at most {limits['most_side']} per side are allowed"
        )
    if math.prod(sizes) * DTYPES[dtype].itemsize != len(raw):
        raise Refusal(422, f"images {tuple(sizes)} of {dtype} need another number of bytes than {len(raw)}")
    return np.frombuffer(raw, DTYPES[dtype]).reshape(sizes)


def _require_count(count: int, limits: ServeLimits) -> None:
    if count < 1:
        raise Refusal(422, "no image was sent: at least one is needed")
    if count > limits["most_images"]:
        raise Refusal(413, f"{count} images were sent, at most {limits['most_images']} are allowed in a request")


def _unpack(text: Any, name: str) -> bytes:
    try:
        if not isinstance(text, str):
            raise ValueError("it is no text")
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Refusal(422, f"{name} is no base64 text") from error


def _members(content: bytes, limits: ServeLimits) -> dict[str, tuple[bytes, tuple[int, ...], np.dtype[Any]]]:
    """Return the bytes, shape and type of each array. Nothing is allocated that is larger than a body may be."""
    found = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        if len(members) > MOST_MEMBERS or sum(member.file_size for member in members) > int(limits["body_bytes"]):
            raise Refusal(413, f"the .npz file holds more than {limits['body_bytes']:,} bytes or {MOST_MEMBERS} arrays")
        if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
            raise Refusal(422, "the .npz file is compressed in an unusual way: write it with numpy.savez")
        for member in members:
            with archive.open(member) as file:
                raw = file.read(member.file_size)
            found[member.filename.removesuffix(".npy")] = _array(raw)
    return found


def _array(raw: bytes) -> tuple[bytes, tuple[int, ...], np.dtype[Any]]:
    """Return the bytes, shape and type of an .npy file, or raise a ValueError."""
    if raw[:6] != b"\x93NUMPY" or raw[6:7] not in (b"\x01", b"\x02"):
        raise ValueError("an array in it is not in NumPy's format")
    width = 2 if raw[6] == 1 else 4
    start = 8 + width
    length = int.from_bytes(raw[8:start], "little")
    if length > LONGEST_HEAD:
        raise ValueError("the header of an array is too long")
    head = NPY_HEAD.fullmatch(raw[start : start + length])
    if head is None:
        raise ValueError("an array holds no plain numbers or texts, or its header is damaged")
    if head["fortran"] == b"True":
        raise ValueError("an array is not in C order")
    try:
        dtype = np.dtype(head["dtype"].decode())
    except TypeError as error:
        raise ValueError("an array is of an unknown type") from error
    shape, body = tuple(map(int, re.findall(rb"\d+", head["shape"]))), raw[start + length :]
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(body):
        raise ValueError("an array holds objects, or has another size than its header says")
    return body, shape, dtype
