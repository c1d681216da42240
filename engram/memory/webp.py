"""WebP without what every file has in common: 27 bytes that follow from the size of the image and of the file.

A lossy WebP file is

    "RIFF" size "WEBP" "VP8 " length, frame tag (3 bytes), 9d 01 2a, width, height, the rest, a zero if length is odd

Only the frame tag and the rest are kept. A file of another kind is kept whole.
"""

from __future__ import annotations

import struct

START = b"\x9d\x01\x2a"
HEADER, TAG, DIMENSIONS = 20, 3, 4


def bare(file: bytes, width: int, height: int) -> bytes:
    """Return a WebP file without its constant bytes."""
    frame = file[HEADER:]
    (length,) = struct.unpack("<I", file[16:20])
    kept = frame[:TAG] + frame[TAG + len(START) + DIMENSIONS : length]
    return kept if whole(kept, width, height) == file else file


def whole(record: bytes, width: int, height: int) -> bytes:
    """Return the WebP file that `bare` was given; a record that is a whole file is returned as it is."""
    if record[:4] == b"RIFF" and record[8:12] == b"WEBP":
        return record
    frame = record[:TAG] + START + struct.pack("<HH", width, height) + record[TAG:]
    padding = b"\0" * (len(frame) % 2)
    chunk = b"VP8 " + struct.pack("<I", len(frame)) + frame + padding
    return b"RIFF" + struct.pack("<I", len(b"WEBP") + len(chunk)) + b"WEBP" + chunk
