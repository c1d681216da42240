"""A data set in memory: training and test images, their labels, and the names of the classes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from platformdirs import user_cache_path

from engram.base.errors import InputError

Array = np.ndarray[Any, Any]


class DataError(InputError):
    """Raised when a data set is missing or damaged, or when a stream cannot be made from it as asked."""


@dataclass(frozen=True)
class Dataset:
    """Training and test images with their labels.

    Args:
        name: name of the data set.
        train_x: training images (N,C,H,W), uint8 or float in [0,1].
        train_y: labels of the training images, as indices into `class_names`.
        test_x: test images, like `train_x`.
        test_y: labels of the test images, like `train_y`.
        class_names: name of each class.
    """

    name: str
    train_x: Array
    train_y: Array
    test_x: Array
    test_y: Array
    class_names: tuple[str, ...]


def from_arrays(
    train_x: Array, train_y: Sequence[Any] | Array, test_x: Array, test_y: Sequence[Any] | Array, name: str = "arrays"
) -> Dataset:
    """Make a data set from arrays of images and labels. Classes are numbered in the sorted order of their labels.

    Args:
        train_x: training images (N,C,H,W), uint8 or float in [0,1].
        train_y: label of each training image, such as numbers or strings.
        test_x: test images, like `train_x`.
        test_y: label of each test image; every label must also occur in `train_y`.
        name: name of the data set.
    """
    for split, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        if len(x) != len(y):
            raise DataError(f"{split} has {len(x)} images but {len(y)} labels: give one label per image")
    classes, train_indices = np.unique(np.asarray(train_y), return_inverse=True)
    unknown = np.setdiff1d(np.asarray(test_y), classes)
    if len(unknown):
        raise DataError(
            f"test labels {unknown[:5].tolist()} do not occur in the training labels: give training images of these "
            "classes, or leave out their test images"
        )
    test_indices = np.searchsorted(classes, np.asarray(test_y))
    return Dataset(name, train_x, train_indices, test_x, test_indices, tuple(str(label) for label in classes))


def data_folder() -> Path:
    """Return the folder in which data sets are looked for: $ENGRAM_DATA, or a folder in the user's cache."""
    given = os.environ.get("ENGRAM_DATA")
    return Path(given) if given else user_cache_path("engram") / "data"
