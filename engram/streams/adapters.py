"""Make a data set from what other libraries hold: arrays, torch data sets, Hugging Face data sets.

None of these libraries is imported. A torch data set is anything with a length and items `(image, label)`; a Hugging
Face data set is anything with `column_names`, a length and items that are dictionaries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from engram.streams.dataset import CHANNELS, Array, DataError, Dataset, from_arrays, held_out, names_as_labels
from engram.streams.images import resize, to_pixels

IMAGE_COLUMNS, LABEL_COLUMNS = ("image", "img"), ("label", "labels", "fine_label")
TEST_KEYS = ("test", "validation", "valid", "val")
"""Names of test images in a dictionary of data sets; the first that is there is used."""


def to_dataset(source: Any, test: Any = None, size: int | None = None, name: str = "data") -> Dataset:
    """Make a data set from images and labels in another form.

    Args:
        source: a `Dataset`, a pair `(x, y)` of images (N,C,H,W) and labels, a torch data set of pairs `(image, label)`,
            a Hugging Face data set, or a dictionary of one of these for "train" and one for "test".
        test: test images in one of these forms; if None, the last sixth of the images of each class.
        size: pixels per side; if None, the images' own.
        name: name of the data set.
    """
    if isinstance(source, Dataset):
        if test is not None:
            raise DataError("a Dataset has test images already: leave out test")
        return source
    if isinstance(source, Mapping):
        if "train" not in source:
            raise DataError(f"a dictionary of data sets needs 'train', but it has {', '.join(map(str, source))}")
        test = next((source[key] for key in TEST_KEYS if key in source), None) if test is None else test
        source = source["train"]
    x, y, names = _arrays(source, size)
    if test is not None:
        test_x, test_y, _ = _arrays(test, size)
        return _named(from_arrays(x, y, test_x, test_y, name), names)
    tested = held_out(y) if y.ndim == 1 else np.zeros(len(y), dtype=bool)
    return _named(from_arrays(x[~tested], y[~tested], x[tested], y[tested], name), names)


def _named(data: Dataset, names: Sequence[str] | None) -> Dataset:
    """Return the data set with the names of its classes, if the labels are indices into `names`."""
    if names is None or not all(label.isdecimal() and int(label) < len(names) for label in data.class_names):
        return data
    own = tuple(str(names[int(label)]) for label in data.class_names)
    return replace(data, class_names=own, labels=names_as_labels(data.name, own) or data.labels)


def _arrays(source: Any, size: int | None) -> tuple[Array, Array, Sequence[str] | None]:
    """Return the images, the labels and, if the source knows them, the names of the classes."""
    names: Sequence[str] | None = None
    if isinstance(source, tuple | list) and len(source) == 2 and all(hasattr(each, "__len__") for each in source):
        x, y = _both(*source)
    elif hasattr(source, "column_names") and hasattr(source, "__len__"):
        image, label, names = hugging_face_columns(source)
        x, y = _stacked(((item[image], item[label]) for item in map(source.__getitem__, range(len(source)))), size)
    elif hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        x, y = _stacked(map(one_pair, map(source.__getitem__, range(len(source)))), size)
        names = getattr(source, "classes", None)
    else:
        raise DataError(
            f"{type(source).__name__} is not a data set: give a pair (x, y), a torch data set with a length and items "
            "(image, label), or a Hugging Face data set"
        )
    if size is not None and x.ndim == 4 and x.shape[1] in CHANNELS and x.shape[2:] != (size, size):
        x = _resized(x, size)
    return x, y, names


def _both(x: Any, y: Any) -> tuple[Array, Array]:
    """Return images and labels as arrays."""
    try:
        return np.asarray(x), np.asarray(y)
    except ValueError as error:
        raise DataError(
            f"{type(x).__name__} and {type(y).__name__} are not arrays of images and labels: give a pair (x, y), or "
            "one data set, and the test images with test="
        ) from error


def hugging_face_columns(source: Any) -> tuple[str, str, Sequence[str] | None]:
    """Return the names of the columns with the images and the labels, and the names of the classes if it has them."""
    features = getattr(source, "features", None) or {}

    def column(kind: str, usual: tuple[str, ...]) -> str:
        typed = [each for each in source.column_names if type(features.get(each)).__name__ == kind]
        usually = [each for each in typed or source.column_names if each in usual]
        found = typed if len(typed) == 1 else usually or typed
        if len(found) != 1:
            raise DataError(
                f"the data set has the columns {', '.join(source.column_names)}, "
                f"{'several' if found else 'none'} of which may be the {usual[0]}: "
                f"use rename_column and remove_columns, so that exactly one is called {usual[0]!r}"
            )
        return str(found[0])

    label = column("ClassLabel", LABEL_COLUMNS)
    return column("Image", IMAGE_COLUMNS), label, getattr(features.get(label), "names", None)


def one_pair(item: Any) -> tuple[Any, Any]:
    """Return an item of a data set as an image and its label."""
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise DataError(f"an item of the data set is a {type(item).__name__}: each must be a pair (image, label)")
    return item[0], item[1]


def _stacked(pairs: Any, size: int | None) -> tuple[Array, Array]:
    images: list[Array] = []
    labels = []
    for image, label in pairs:
        array = to_pixels(image, size) if isinstance(image, Image.Image) else np.asarray(image)
        if array.ndim != 3 or array.shape[0] not in CHANNELS:
            raise DataError(
                f"an image has the shape {array.shape}: give PIL images, or arrays (C,H,W) of 1 or 3 channels"
            )
        if images and array.shape != images[0].shape:
            raise DataError(f"images have the shapes {images[0].shape} and {array.shape}: give all one size")
        images.append(array)
        labels.append(label.item() if hasattr(label, "item") else label)
    if not images:
        raise DataError("the data set is empty: give at least one image")
    return np.stack(images), np.asarray(labels)


def _resized(images: Array, size: int) -> Array:
    if images.dtype != np.uint8 or images.shape[1] != 3:
        raise DataError(
            f"only RGB images of uint8 can be resized, these are {images.dtype} of shape {images.shape[1:]}: give them "
            f"in the size that is asked for, {size}×{size}"
        )
    return resize(images, size)
