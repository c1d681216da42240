"""A data set in memory: training and test images, their labels, and the names of the classes."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from platformdirs import user_cache_path

from engram.base.errors import InputError

if TYPE_CHECKING:
    from engram.base.validation import Label

Array = np.ndarray[Any, Any]
CHANNELS = (1, 3)

_log = logging.getLogger(__name__)


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
        left_out: files that were found but do not belong to it, in words.
        labels: label of each class, as streams deliver it; if empty, the classes have no names, and their numbers are
            delivered.
    """

    name: str
    train_x: Array
    train_y: Array
    test_x: Array
    test_y: Array
    class_names: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    labels: tuple[Label, ...] = ()

    def labels_of(self, y: Array) -> Array:
        """Return the labels of images as streams deliver them, given the numbers of their classes."""
        return np.asarray(self.labels)[y] if self.labels else y

    def numbered(self) -> Dataset:
        """Return the data set with the numbers of its classes as labels, whatever their names are."""
        return replace(self, labels=())


def names_as_labels(name: str, class_names: Sequence[str]) -> tuple[Label, ...]:
    """Return the class names as labels; none, with a warning, if two classes have the same name.

    Args:
        name: name of the data set, for the warning.
        class_names: name of each class.
    """
    if len(set(class_names)) == len(class_names):
        return tuple(map(str, class_names))
    _log.warning("%s: two classes have the same name, so the numbers of the classes are their labels", name)
    return ()


def from_arrays(
    train_x: Array, train_y: Sequence[Any] | Array, test_x: Array, test_y: Sequence[Any] | Array, name: str = "arrays"
) -> Dataset:
    """Make a data set from arrays or tensors of images and labels. Classes are numbered in the order of their labels.

    Streams deliver the labels as given, if they are integers or strings, and as text otherwise.

    Args:
        train_x: training images (N,C,H,W) with one or three channels, uint8 or float in [0,1].
        train_y: label of each training image, such as numbers or strings.
        test_x: test images, like `train_x`.
        test_y: label of each test image; every label must also occur in `train_y`.
        name: name of the data set.
    """
    train_x, train_y, test_x, test_y = (np.asarray(each) for each in (train_x, train_y, test_x, test_y))
    for split, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        _require_images(split, x)
        if y.ndim != 1:
            raise DataError(f"{split} labels have the shape {y.shape}: give one number or text per image")
        if len(x) != len(y):
            raise DataError(f"{split} has {len(x)} images but {len(y)} labels: give one label per image")
    classes, train_indices = np.unique(train_y, return_inverse=True)
    unknown = np.setdiff1d(test_y, classes)
    if len(unknown):
        raise DataError(
            f"test labels {unknown[:5].tolist()} do not occur in the training labels: give training images of these "
            "classes, or leave out their test images"
        )
    test_indices = np.searchsorted(classes, test_y)
    names = tuple(str(label) for label in classes)
    labels = tuple(map(int, classes)) if classes.dtype.kind in "iu" else names
    return Dataset(name, train_x, train_indices, test_x, test_indices, names, labels=labels)


def training_share(count: int) -> int:
    """Return how many of the `count` images of a class are for training: the first five sixths, at least one."""
    return max(1, count * 5 // 6)


def held_out(labels: Array) -> Array:
    """Return for each image whether it is a test image, if the last images of each class are (see `training_share`).

    >>> held_out(np.array([0, 1, 0, 0, 0, 1, 0, 0])).tolist()
    [False, False, False, False, False, True, False, True]
    """
    test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        test[own[training_share(len(own)) :]] = True
    return test


def data_folder() -> Path:
    """Return the folder in which data sets are looked for: $ENGRAM_DATA, or a folder in the user's cache."""
    given = os.environ.get("ENGRAM_DATA")
    return Path(given) if given else user_cache_path("engram") / "data"


def _require_images(split: str, x: Array) -> None:
    """Refuse an array that does not hold images with the channels first."""
    if x.ndim != 4:
        raise DataError(f"{split} images have the shape {x.shape}: give an array (N,C,H,W), with C = 1 or 3 channels")
    if x.shape[1] not in CHANNELS and x.shape[3] in CHANNELS:
        raise DataError(
            f"{split} images have the shape {x.shape}, with the channels last: use x.transpose(0, 3, 1, 2), which puts "
            "them first"
        )
    if x.shape[1] not in CHANNELS:
        raise DataError(f"{split} images have {x.shape[1]} channels (shape {x.shape}): give one channel or three")
