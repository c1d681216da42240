"""Data sets of image files: the files are decoded once and their pixels kept in the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engram.streams.cache import ImageSource, cached_pixels
from engram.streams.dataset import Array, DataError, Dataset, held_out, names_as_labels
from engram.streams.files import FileTree
from engram.streams.images import LARGEST_FILE, Fit, decode

MOST_AT_ONCE = 256
"""Largest number of image files that are read at a time."""
BYTES_AT_ONCE = 32 << 20
"""Files are read together as long as they have at most this number of bytes."""


@dataclass(frozen=True)
class ImageFile:
    """An image file of a data set.

    Args:
        name: name of the file in its `FileTree`.
        label: index of its class.
        test: whether it is a test image; None if it is one of the last images of its class (see `held_out`).
    """

    name: str
    label: int
    test: bool | None = None


def from_files(
    name: str,
    source: FileTree | ImageSource,
    files: Sequence[ImageFile],
    class_names: Sequence[str],
    size: int,
    skip_damaged: bool = False,
    left_out: tuple[str, ...] = (),
) -> Dataset:
    """Make a data set from image files. The files are decoded unless their pixels are in the cache.

    Args:
        name: name of the data set.
        source: the folder or archive that holds the files, or another source of images.
        files: the image files.
        class_names: name of each class.
        size: pixels per side of the decoded images.
        skip_damaged: leave out image files that cannot be read, instead of stopping.
        left_out: what was found but does not belong to the data set, in words.
    """
    source = TreeImages(source) if isinstance(source, FileTree) else source
    files = [files[position] for position in _training_first(files)]

    def order(kept: list[int]) -> list[int]:
        return [kept[position] for position in _training_first([files[index] for index in kept])]

    key = [[file.name, file.label, file.test] for file in files]
    images, kept = cached_pixels(name, source, [file.name for file in files], key, size, skip_damaged, order)
    left = [files[index] for index in kept]
    train = int((~_tested(left)).sum())
    y = np.array([file.label for file in left], dtype=np.int64)
    labels = names_as_labels(name, class_names)
    return Dataset(name, images[:train], y[:train], images[train:], y[train:], tuple(class_names), left_out, labels)


def _tested(files: Sequence[ImageFile]) -> Array:
    """Return for each file whether it is a test image."""
    open_labels = np.array([-1 if file.test is not None else file.label for file in files], dtype=np.int64)
    return np.where(open_labels < 0, [bool(file.test) for file in files], held_out(open_labels))


def _training_first(files: Sequence[ImageFile]) -> list[int]:
    """Return the positions of the training images and then those of the test images."""
    order: list[int] = np.argsort(_tested(files), kind="stable").tolist()
    return order


class TreeImages:
    """The image files of a folder or archive, as a source of images.

    Args:
        tree: the folder or archive.
        fit: how an image that is not square becomes one.
    """

    def __init__(self, tree: FileTree, fit: Fit = "crop") -> None:
        self.tree, self.fit = tree, fit

    @property
    def place(self) -> Path:
        """Path of the folder or archive."""
        return self.tree.place

    def fingerprint(self) -> str:
        """Return a text that changes whenever the pixels do."""
        return self.tree.fingerprint() + ("" if self.fit == "crop" else self.fit)

    def decoded(self, names: Sequence[str], size: int) -> Iterator[Array | DataError]:
        """Yield the pixels (3,size,size) of each of these files, or the error that it cannot be read with."""
        pool = ThreadPoolExecutor()
        try:
            for together in self._groups(names):
                contents = self._contents(together)
                yield from pool.map(lambda item: self._decode(item[0], item[1], size), contents)
        finally:
            pool.shutdown(cancel_futures=True)

    def _groups(self, names: Sequence[str]) -> Iterator[list[str]]:
        """Divide the names into groups that are read together."""
        group: list[str] = []
        count = 0
        for name in names:
            size = self.tree.sizes[name]
            if group and (len(group) == MOST_AT_ONCE or count + size > BYTES_AT_ONCE):
                yield group
                group, count = [], 0
            group.append(name)
            count += size
        if group:
            yield group

    def _contents(self, names: list[str]) -> list[tuple[str, bytes | DataError]]:
        try:
            return list(self.tree.read_all(names, LARGEST_FILE).items())
        except DataError:
            return [(name, self._content(name)) for name in names]

    def _content(self, name: str) -> bytes | DataError:
        try:
            return self.tree.read(name, LARGEST_FILE)
        except DataError as error:
            return DataError(f"{error} ({name})")

    def _decode(self, name: str, content: bytes | DataError, size: int) -> Array | DataError:
        if isinstance(content, DataError):
            return content
        try:
            return decode(content, size, f"{self.place}: {name}", self.fit)
        except DataError as error:
            return error
