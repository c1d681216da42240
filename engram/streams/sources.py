"""Batches of images and labels from wherever they are: folders, data sets of other libraries, loaders, loops.

Nothing is read before its turn comes, so a folder may be larger than the memory of the machine.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from engram.persistence.files import NotAPlainFileError, read_plain
from engram.streams.adapters import IMAGE_COLUMNS, LABEL_COLUMNS, hugging_face_columns, one_pair
from engram.streams.class_folders import SIZE as FOLDER_SIZE
from engram.streams.dataset import Array, DataError, Dataset
from engram.streams.decoded import TreeImages
from engram.streams.files import FileTree, open_files
from engram.streams.images import LARGEST_FILE, Fit, decode, is_image, to_pixels
from engram.streams.layout import Layout, image_names, recognize, train_and_test

BATCH = 10
"""Images in a batch, if none is given."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImageReading:
    """How images are read and put into batches.

    Args:
        batch: number of images in a batch.
        size: pixels per side of images from files and of PIL images; if None, 32 for files, else the images' own.
        fit: how images that are not square become so.
        seed: seed of the order of the images.
        skip_damaged: leave out image files that cannot be read, instead of stopping.
    """

    batch: int = BATCH
    size: int | None = None
    fit: Fit = "crop"
    seed: int = 0
    skip_damaged: bool = False


@dataclass(frozen=True)
class Batches:
    """Batches of images and labels. A batch whose images were all left out is empty.

    Args:
        start_at: returns the batches from the one of that number on.
        count: number of batches; None if it is not known.
        digest: hash of what they are made of and of their order; empty if it is not known.
    """

    start_at: Callable[[int], Iterator[tuple[Any, Any]]]
    count: int | None = None
    digest: str = ""

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self.start_at(0)


def to_batches(source: Any, reading: ImageReading) -> Batches:
    """Return the batches of a source.

    Images of folders and data sets come in an order that the seed draws; batches of loaders come as they are.

    Args:
        source: a folder with one folder of images per class, a pair `(x, y)`, a torch data set, a Hugging Face data
            set (also one that streams), a `Dataset`, a DataLoader, or any iterable of batches `(images, labels)`.
        reading: how images are read and put into batches.
    """
    if isinstance(source, str | Path):
        return _folder(Path(source).expanduser(), reading)
    if isinstance(source, Dataset):
        source = (source.train_x, source.labels_of(source.train_y))
    if _is_pair_of_arrays(source):
        x, y = source[0], np.asarray(source[1])
        if y.ndim == 0:
            raise DataError(f"the labels are one {type(source[1]).__name__}: give a sequence, one label per image")
        if len(x) != len(y):
            raise DataError(f"there are {len(x)} images but {len(y)} labels: give one label per image")
        return _shuffled(len(x), reading, lambda index: (x[index], y[index]))
    if hasattr(source, "column_names"):
        return _hugging_face(source, reading)
    if hasattr(source, "__getitem__") and hasattr(source, "__len__") and not _holds_batches(source):
        names = _class_names(source)
        return _shuffled(len(source), reading, lambda index: _named(*one_pair(source[index]), names))
    if not isinstance(source, Iterable):
        raise DataError(
            f"{type(source).__name__} is no source of images: give a folder, a pair (x, y), a data set, a DataLoader "
            "or an iterable of batches (images, labels)"
        )
    names = _class_names(source)
    count = None
    with suppress(TypeError):  # a DataLoader over an iterable data set has a length that cannot be asked for
        count = len(source) if isinstance(source, Sized) else None
    return Batches(lambda start: (_batch(item, names) for item in itertools.islice(source, start, None)), count)


def read_images(paths: Iterable[str | Path], reading: ImageReading) -> Array:
    """Return the pixels of image files as uint8 (N,3,size,size).

    Args:
        paths: the files.
        reading: how images are read.
    """
    size = reading.size or FOLDER_SIZE
    images = [_read(Path(path).expanduser(), size, reading.fit) for path in paths]
    return np.stack(images) if images else np.zeros((0, 3, size, size), np.uint8)


def read_if_files(x: Any, reading: ImageReading) -> Any:
    """Return the images of files and folders that are named by their paths, one or a list; anything else as it is."""
    paths = [x] if isinstance(x, str | Path) else x
    if isinstance(paths, list | tuple) and paths and all(isinstance(each, str | Path) for each in paths):
        return read_images([file for each in paths for file in image_files(Path(each).expanduser())], reading)
    return x


def image_files(place: Path) -> list[Path]:
    """Return the image files in a folder and below it, in the order of their names; or the file, if it is one."""
    return [place / name for name in image_names(open_files(place))] if place.is_dir() else [place]


def _read(path: Path, size: int, fit: Fit) -> Array:
    try:
        content = read_plain(path, LARGEST_FILE, follow=True)
    except NotAPlainFileError as error:
        raise DataError(f"{error}: name an image file of at most {LARGEST_FILE:,} bytes") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}): name an image file") from error
    return decode(content, size, str(path), fit)


def open_photos(place: Path) -> tuple[FileTree, Layout]:
    """Return the files of a folder of photos and their layout, or raise a DataError if it is none."""
    if not place.exists():
        raise DataError(f"{place} is not there: name a folder with one folder of images per class")
    if place.is_file() and is_image(place.name):
        raise DataError(f"{place} is one image: name a folder with one folder of images per class")
    tree = open_files(place)
    return tree, recognize(tree)


def _folder(place: Path, reading: ImageReading) -> Batches:
    tree, layout = open_photos(place)
    train, test, _ = train_and_test(tree, layout)
    if test:
        _log.warning("%s: its %d test images are not learned from", place, sum(map(len, test.values())))
    files = [(name, each) for each in sorted(train) for name in train[each]]
    size, source = reading.size or FOLDER_SIZE, TreeImages(tree, reading.fit)
    order = _order(len(files), reading)

    def start_at(start: int) -> Iterator[tuple[Any, Any]]:
        chosen = [files[index] for index in order[start * reading.batch :]]
        decoded = zip(source.decoded([name for name, _ in chosen], size), chosen, strict=True)
        while group := list(itertools.islice(decoded, reading.batch)):
            kept = [(pixels, label) for found, (_, label) in group if (pixels := _sound(found, reading)) is not None]
            images = np.stack([pixels for pixels, _ in kept]) if kept else np.zeros((0, 3, size, size), np.uint8)
            yield images, [label for _, label in kept]

    facts = repr([sorted((name, tree.sizes[name]) for name, _ in files), order.tolist(), size, reading])
    digest = hashlib.sha256(facts.encode("utf-8", "surrogateescape")).hexdigest()
    return Batches(start_at, -(-len(files) // reading.batch), digest)


def _sound(pixels: Array | DataError, reading: ImageReading) -> Array | None:
    """Return the pixels of an image; None if it could not be read and is left out."""
    if not isinstance(pixels, DataError):
        return pixels
    if not reading.skip_damaged:
        raise pixels
    _log.warning("left out: %s", pixels)
    return None


def _hugging_face(source: Any, reading: ImageReading) -> Batches:
    image, label, names = hugging_face_columns(source)
    if hasattr(source, "__len__"):
        return _shuffled(len(source), reading, lambda index: _named(source[index][image], source[index][label], names))

    def start_at(start: int) -> Iterator[tuple[Any, Any]]:
        items = (_named(item[image], item[label], names) for item in source)
        later = itertools.islice(items, start * reading.batch, None)
        while group := list(itertools.islice(later, reading.batch)):
            yield _stacked(group, reading)

    return Batches(start_at)


def _shuffled(count: int, reading: ImageReading, item: Callable[[int], tuple[Any, Any]]) -> Batches:
    order = _order(count, reading).tolist()

    def start_at(start: int) -> Iterator[tuple[Any, Any]]:
        for at in range(start * reading.batch, count, reading.batch):
            yield _stacked([item(index) for index in order[at : at + reading.batch]], reading)

    return Batches(start_at, -(-count // reading.batch))


def _order(count: int, reading: ImageReading) -> Array:
    if reading.batch < 1:
        raise DataError(f"batch is {reading.batch}: give at least 1")
    return np.random.default_rng([reading.seed, 1]).permutation(count)


def _stacked(items: Sequence[tuple[Any, Any]], reading: ImageReading) -> tuple[Array, list[Any]]:
    images = [
        to_pixels(image, reading.size, reading.fit) if isinstance(image, Image.Image) else np.asarray(image)
        for image, _ in items
    ]
    if len({image.shape for image in images}) > 1:
        raise DataError(f"images have the shapes {images[0].shape} and others: give `size`, or images of one size")
    return np.stack(images), [_plain(label) for _, label in items]


def _batch(item: Any, names: Sequence[str] | None) -> tuple[Any, Any]:
    if isinstance(item, Mapping):
        image, label = (next((key for key in keys if key in item), None) for keys in (IMAGE_COLUMNS, LABEL_COLUMNS))
        item = (item.get(image), item.get(label))
    x, y = one_pair(item)
    return (x, y) if names is None else (x, [_named(None, label, names)[1] for label in y])


def _named(image: Any, label: Any, names: Sequence[str] | None) -> tuple[Any, Any]:
    """Return an image and its label, by its name if it is an index into `names`."""
    plain = _plain(label)
    return image, names[plain] if names is not None and isinstance(plain, int) and 0 <= plain < len(names) else plain


def _plain(label: Any) -> Any:
    """Return a label as Python's own integer or string, given any kind of single value."""
    if (count := math.prod(np.shape(label))) != 1:
        raise DataError(f"a label has {count} values: give one integer or string per image, such as its argmax")
    return label.item() if hasattr(label, "item") else label


def _class_names(source: Any) -> Sequence[str] | None:
    """Return the names of the classes that a data set knows, also below a loader or a subset; None if two are alike.

    Of synonyms, the first is taken. Data sets that were joined must name the same classes.
    """
    while source is not None:
        names = getattr(source, "classes", None)
        if isinstance(names, list | tuple):
            first = [each[0] if isinstance(each, list | tuple) and each else each for each in names]
            if all(isinstance(name, str) for name in first):
                return first if len(set(first)) == len(first) else None
        if isinstance(joined := getattr(source, "datasets", None), list | tuple):
            return _shared_names(joined)
        source = getattr(source, "dataset", None)
    return None


def _shared_names(joined: Sequence[Any]) -> Sequence[str] | None:
    """Return the names that data sets have in common, or raise a DataError if they number different classes."""
    every = [_class_names(each) for each in joined]
    if any(names != every[0] for names in every):
        raise DataError(
            "the joined data sets have different classes, so the same index means another class in each of them: "
            "learn from one after the other"
        )
    return every[0] if every else None


def _is_pair_of_arrays(source: Any) -> bool:
    return isinstance(source, tuple | list) and len(source) == 2 and getattr(source[0], "ndim", 0) == 4


def _holds_batches(source: Any) -> bool:
    """Return whether the items of a sequence are batches, and not single images."""
    first = source[0] if len(source) else None
    return isinstance(first, tuple | list) and len(first) == 2 and getattr(first[0], "ndim", 0) == 4
