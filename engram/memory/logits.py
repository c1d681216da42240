"""Logits that are kept with an image, as a tail of its record. So they are limited, saved and counted like the image.

    record = encoded image, one byte a logit, offset and step (float16), number of logits (16 bits)

A logit is about offset + step · byte. An image without logits has only their number, which is 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

COUNT_BYTES = 2
RANGE_BYTES = 4
MOST_LOGITS = (1 << 16) - 1
"""Logits that are kept of an image at most: those of the first classes."""
LARGEST = 30000.0
"""Logits beyond are cut, so that their range fits float16."""
LEVELS = 255


def add_logits(record: Tensor, logits: Tensor | None = None) -> Tensor:
    """Return the record of an image with the logits (classes,) behind it."""
    row = np.zeros(0, np.float32) if logits is None else logits.detach().float().cpu().numpy()[:MOST_LOGITS]
    tail = np.array([len(row)], "<u2").tobytes()
    if len(row):
        row = row.clip(-LARGEST, LARGEST)
        offset = row.min().astype("<f2")
        step = ((row.max() - np.float32(offset)) / LEVELS).clip(0).astype("<f2")
        levels = (row - np.float32(offset)) / (np.float32(step) or 1)
        tail = levels.round().clip(0, LEVELS).astype(np.uint8).tobytes() + offset.tobytes() + step.tobytes() + tail
    return torch.cat([record, torch.frombuffer(bytearray(tail), dtype=torch.uint8)])


def split_record(record: Tensor) -> tuple[Tensor, Tensor]:
    """Return the encoded image of a record, and its logits; a record that cannot be raises a ValueError."""
    content = record.numpy()
    if len(content) < COUNT_BYTES:
        raise ValueError(f"a record of {len(content)} bytes has no room for its number of logits")
    (count,) = np.frombuffer(content[-COUNT_BYTES:].tobytes(), "<u2").tolist()
    if not count:
        return record[:-COUNT_BYTES], torch.zeros(0)
    end = len(content) - COUNT_BYTES - RANGE_BYTES
    if end < count:
        raise ValueError(f"a record of {len(content)} bytes has no room for the {count} logits it should have")
    offset, step = np.frombuffer(content[end : end + RANGE_BYTES].tobytes(), "<f2").astype(np.float32)
    if not np.isfinite(offset) or not np.isfinite(step) or step < 0:
        raise ValueError(f"logits from {offset} in steps of {step} cannot be")
    logits = offset + step * content[end - count : end].astype(np.float32)
    return record[: end - count], torch.from_numpy(logits)


def as_rows(logits: Sequence[Tensor]) -> Tensor:
    """Return the logits of several images as rows (N,most), NaN where an image has none."""
    return pad_sequence(list(logits), batch_first=True, padding_value=torch.nan)
