"""Data sets by name."""

from __future__ import annotations

from collections.abc import Callable

from engram.naming import suggest
from engram.streams.cifar import load_cifar100
from engram.streams.dataset import DataError, Dataset
from engram.streams.digits import load_digits

DATASETS: dict[str, Callable[[], Dataset]] = {"digits": load_digits, "cifar100": load_cifar100}


def load_dataset(name: str) -> Dataset:
    if name not in DATASETS:
        raise DataError(f"unknown data set {name!r}{suggest(name, list(DATASETS))}")
    return DATASETS[name]()
