"""Which device to compute on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from engram.base.errors import InputError

_NAME = re.compile(r"(auto|cpu|cuda|mps)(?::(\d+))?")


def available_devices() -> list[str]:
    """Return the names of the devices that this machine has."""
    gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return ["cpu", *gpus, *(["mps"] if torch.backends.mps.is_available() else [])]


def resolve_device(name: Any) -> str:
    """Return the device that a name stands for, or raise an `InputError` that says which ones there are.

    >>> resolve_device("cpu")
    'cpu'
    """
    available = available_devices()
    match = _NAME.fullmatch(str(name))
    if not match:
        raise InputError(f"device is {name!r}: need auto, cpu, cuda, cuda:N or mps; there is {', '.join(available)}")
    kind, index = match[1], match[2]
    if kind == "auto":
        return next((device for device in available if device.startswith("cuda")), "cpu")
    device = f"cuda:{index or torch.cuda.current_device()}" if kind == "cuda" and torch.cuda.is_available() else kind
    if device not in available:
        raise InputError(f"device {str(name)!r} is not available here: there is {', '.join(available)}")
    return device


@contextmanager
def using_threads(threads: int | None) -> Iterator[None]:
    """Compute with this many CPU threads while inside; None leaves their number as it is."""
    before = torch.get_num_threads()
    if threads is None or threads == before:
        yield
        return
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
