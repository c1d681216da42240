"""A batch as bytes: what a record of the journal holds."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from engram.base.validation import Label

Array = np.ndarray[Any, np.dtype[Any]]

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, eq=False)
class LabeledBatch:
    """Images and their labels as they arrived.

    Args:
        images: (N,C,H,W), uint8 or float32.
        labels: one label per image, all int or all str.
    """

    images: Array
    labels: list[Label]

    def to_bytes(self) -> bytes:
        """Return the batch as bytes, the same for the same batch."""
        facts = {"labels": self.labels, "shape": list(self.images.shape), "dtype": str(self.images.dtype)}
        head = json.dumps(facts).encode()
        return _LENGTH.pack(len(head)) + head + np.ascontiguousarray(self.images).tobytes()

    @classmethod
    def from_bytes(cls, content: bytes) -> LabeledBatch:
        """Return the batch that `to_bytes` wrote."""
        (length,) = _LENGTH.unpack_from(content)
        facts = json.loads(content[_LENGTH.size : _LENGTH.size + length])
        pixels = np.frombuffer(
            content, np.dtype(facts["dtype"]), math.prod(facts["shape"]), offset=_LENGTH.size + length
        )
        return cls(pixels.reshape(facts["shape"]), facts["labels"])
