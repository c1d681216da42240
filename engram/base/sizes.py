"""Sizes in bytes, as people write them."""

from __future__ import annotations

import re

from engram.base.errors import InputError

UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def parse_bytes(size: int | str) -> int:
    """Return the number of bytes that 300000, "300KB" or "1.5 MiB" stands for.

    >>> parse_bytes("300KB"), parse_bytes("1 KiB"), parse_bytes(42)
    (300000, 1024, 42)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(size))
    if not match or match[2].lower() not in UNITS or isinstance(size, bool):
        raise InputError(f"{size!r} is no size in bytes: write 300000, 300KB or 1.5MiB")
    count = int(float(match[1]) * UNITS[match[2].lower()])
    if count < 1:
        raise InputError(f"{size!r} is no size in bytes: at least one is needed")
    return count
