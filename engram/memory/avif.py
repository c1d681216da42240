"""AVIF without what every file has in common: about 290 bytes that follow from the size of the image.

An AVIF file of one picture is

    "ftyp" box, "meta" box, "mdat" box with: temporal delimiter, sequence header, frame (type, length, content)

Only the content of the frame is kept. A file whose sequence header is not the usual one is kept whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from PIL import AvifImagePlugin

DELIMITER, FRAME = b"\x12\x00", b"\x32"
SEQUENCE = b"\x0a"
"""First byte of a sequence header; its length follows."""
PLACE = b"\xff" * 8
"""Stands for offset and length of the data in a file, four bytes each, until they are known."""


def bare(file: bytes, width: int, height: int) -> bytes:
    """Return the content of the only frame of an AVIF file, or the file itself if more than that is special."""
    data = _find(file, b"mdat")
    head = _data_head(width, height) + FRAME
    if not data.startswith(head):
        return file
    try:
        length, start = _read_length(data, len(head))
    except IndexError:
        return file
    content = data[start:]
    return content if len(content) == length and not _is_file(content) else file


def whole(record: bytes, width: int, height: int) -> bytes:
    """Return an AVIF file of the picture that `bare` was given; a record that is a whole file is returned as it is."""
    if _is_file(record):
        return record
    data = _data_head(width, height) + FRAME + _length_bytes(len(record)) + record
    before, after = _around_place(width, height)
    offset = len(before) + len(PLACE) + len(after) + 8
    return before + struct.pack(">II", offset, len(data)) + after + _box(b"mdat", data)


@contextmanager
def in_one_thread() -> Iterator[None]:
    """Let Pillow decode AVIF in this thread while inside. For small pictures, starting threads takes most of the time.

    Pillow takes the number of threads from this variable only.
    """
    before = AvifImagePlugin.DEFAULT_MAX_THREADS
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1
    try:
        yield
    finally:
        AvifImagePlugin.DEFAULT_MAX_THREADS = before


def _is_file(record: bytes) -> bool:
    return record[4:12] == b"ftypavif"


def _find(file: bytes, kind: bytes) -> bytes:
    """Return the content of the first box of that kind, or nothing."""
    at = 0
    while at + 8 <= len(file):
        size, name = struct.unpack_from(">I4s", file, at)
        if name == kind:
            return file[at + 8 : at + size]
        at += max(size, 8)
    return b""


def _box(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(content), kind) + content


@lru_cache
def _around_place(width: int, height: int) -> tuple[bytes, bytes]:
    """Return what a file has before and after the place of its data, up to the data."""
    before, after = (_box(b"ftyp", b"avif\0\0\0\0avifmif1miaf") + _meta(width, height)).split(PLACE)
    return before, after


def _meta(width: int, height: int) -> bytes:
    """Return the box that describes the only picture, with `PLACE` where offset and length of its data stand."""
    version = b"\0\0\0\0"
    picture = struct.pack(">HHI", 1, 0, 0x61763031)  # item 1, not protected, of type "av01"
    location = struct.pack(">HHHHH", 0x4400, 1, 1, 0, 1) + PLACE
    properties = (
        _box(b"ispe", version + struct.pack(">II", width, height))
        + _box(b"pixi", version + b"\3\x08\x08\x08")
        + _box(b"av1C", b"\x81\0\x0c\0")
    )
    uses = struct.pack(">IHBBBB", 1, 1, 3, 1, 2, 0x83)  # item 1 has these three; the last one is essential
    return _box(
        b"meta",
        version
        + _box(b"hdlr", version + b"\0\0\0\0pict" + b"\0" * 13)
        + _box(b"pitm", version + struct.pack(">H", 1))
        + _box(b"iloc", version + location)
        + _box(b"iinf", version + struct.pack(">H", 1) + _box(b"infe", b"\2\0\0\0" + picture + b"\0"))
        + _box(b"iprp", _box(b"ipco", properties) + _box(b"ipma", version + uses)),
    )


@lru_cache
def _data_head(width: int, height: int) -> bytes:
    header = _sequence_header(width, height)
    return DELIMITER + SEQUENCE + bytes([len(header)]) + header


def _sequence_header(width: int, height: int) -> bytes:
    """Return the sequence header of a small still picture, as the AV1 encoder writes it (AV1 specification, 5.5)."""
    across, down = (width - 1).bit_length(), (height - 1).bit_length()
    bits = (
        "000"  # profile: 8 bits, 4:2:0
        "11"  # a still picture, with a reduced header
        "00000"  # level
        f"{across - 1:04b}{down - 1:04b}{width - 1:0{across}b}{height - 1:0{down}b}"
        "0110"  # superblocks of 64 pixels; intra filter and intra edge filter; no superresolution
        "10"  # directional enhancement filter, no restoration
        "001"  # 8 bits, three channels, and a description of the colors:
        f"{1:08b}{13:08b}{6:08b}1"  # BT.709 primaries, sRGB transfer, BT.601 matrix, full range
        "0000"  # position of chroma samples not told, one quantizer for both chroma channels, no film grain
        "1"  # the end
    )
    size = -(-len(bits) // 8)
    return int(bits.ljust(8 * size, "0"), 2).to_bytes(size, "big")


def _length_bytes(number: int) -> bytes:
    """Return a number in groups of seven bits, lowest first; all but the last have the highest bit set."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _read_length(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that `_length_bytes` wrote at a place, and the place after it."""
    number = shift = 0
    while data[at] & 128 and shift < 28:
        number |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return number | data[at] << shift, at + 1
