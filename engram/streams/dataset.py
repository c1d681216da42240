"""A data set in memory: training and test images with class indices and the classes' names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from platformdirs import user_cache_path

from engram.errors import InputError

Array = np.ndarray[Any, Any]


class DataError(InputError):
    """A data set is missing, damaged or not what it should be."""


@dataclass(frozen=True)
class Dataset:
    """Images (N,C,H,W), uint8 or float in [0,1]; labels are indices into `class_names`."""

    name: str
    train_x: Array
    train_y: Array
    test_x: Array
    test_y: Array
    class_names: tuple[str, ...]


def from_arrays(
    train_x: Array, train_y: Sequence[Any] | Array, test_x: Array, test_y: Sequence[Any] | Array, name: str = "arrays"
) -> Dataset:
    """A data set from arrays of images and any labels; classes are numbered in sorted order of their labels."""
    for split, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        if len(x) != len(y):
            raise DataError(f"{split}: {len(x)} images came with {len(y)} labels: one each is needed")
    classes, train_indices = np.unique(np.asarray(train_y), return_inverse=True)
    unknown = np.setdiff1d(np.asarray(test_y), classes)
    if len(unknown):
        raise DataError(f"test labels {unknown[:5].tolist()} do not occur in the training labels")
    test_indices = np.searchsorted(classes, np.asarray(test_y))
    return Dataset(name, train_x, train_indices, test_x, test_indices, tuple(str(label) for label in classes))


def data_folder() -> Path:
    """Where data sets are looked for: $ENGRAM_DATA, or the user's cache."""
    given = os.environ.get("ENGRAM_DATA")
    return Path(given) if given else user_cache_path("engram") / "data"
