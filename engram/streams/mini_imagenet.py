"""Mini-ImageNet (Vinyals et al., 2016) in the layouts that are in common use.

    images with train.csv, val.csv, test.csv, in any folders
    one folder per class, with or without train/, val/ and test/ above them
    mini-imagenet-cache-train.pkl, -val.pkl, -test.pkl

The three splits were made for few-shot learning: each has classes of its own. They are joined, and the first five
sixths of the images of each class are for training, the others for testing. If every class is in train/ and in test/,
these are the training and test images.
"""

from __future__ import annotations

import codecs
import csv
import logging
import mmap
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engram.streams.class_folders import load_classes
from engram.streams.dataset import Array, DataError, Dataset
from engram.streams.decoded import ImageFile, from_files
from engram.streams.files import FileTree, open_files
from engram.streams.finding import find_dataset, plain_name
from engram.streams.images import resize
from engram.streams.layout import Classes, image_names, listed, recognize, train_and_test
from engram.streams.unpickle import load_arrays

NAMES = ("mini-imagenet",)
SPLITS = ("train", "val", "test")
PICKLE = re.compile(r"mini.?imagenet.*(train|val|test).*\.(pkl|pickle)", re.IGNORECASE)
RELEASE_EVERY = 2000
"""Number of images after which the pages of a mapped pickle are given back."""

_log = logging.getLogger(__name__)


def find_mini_imagenet(root: Path) -> Path | None:
    """Return the path of the data set in `root`, or `root` if it is the data set itself, or None."""
    return find_dataset(root, NAMES, _is_mini_imagenet)


def load_mini_imagenet(place: Path, size: int = 84, skip_damaged: bool = False) -> Dataset:
    """Load the data set.

    Args:
        place: path of the folder or archive, or of the folder that has the pickles.
        size: pixels per side of the loaded images.
        skip_damaged: leave out image files that cannot be read, instead of stopping.
    """
    if place.is_dir() and (pickles := _pickles(place)):
        return _from_pickles(place, pickles, size, skip_damaged)
    tree = open_files(place)
    if lists := [name for each in SPLITS if (name := tree.find(f"{each}.csv"))]:
        _warn_of_missing(place, [f"{each}.csv" for each in SPLITS if tree.find(f"{each}.csv") is None])
        files, left_out = _listed(tree, lists)
        return load_classes(NAMES[0], tree, files, None, size, skip_damaged, left_out)
    if packed := [name for name in tree.names() if PICKLE.fullmatch(name.rpartition("/")[2])]:
        raise DataError(
            f"{place} holds {listed(packed)}, but pickles are not read from there: move them to {place.parent}"
        )
    train, test, left_out = train_and_test(tree, recognize(tree), join=True)
    return load_classes(NAMES[0], tree, train, test, size, skip_damaged, left_out)


def _is_mini_imagenet(folder: Path) -> bool:
    """Return whether a folder is the data set itself."""
    if _pickles(folder) or any(_lists_wnids(folder / f"{each}.csv") for each in SPLITS):
        return True
    inner = [path for path in folder.iterdir() if path.is_dir()]
    named = plain_name(folder.resolve().name) == plain_name(NAMES[0])
    return named and any(path.name in (*SPLITS, "images") or re.fullmatch(r"n\d{8}", path.name) for path in inner)


def _lists_wnids(path: Path) -> bool:
    """Return whether a csv file lists images with classes of ImageNet, such as n01532829."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        lines = file.read(1000).removeprefix(codecs.BOM_UTF8).decode("latin1").splitlines()
    return lines[:1] == ["filename,label"] and all(re.fullmatch(r".+,n\d{8}", line) for line in lines[1:2])


def _pickles(folder: Path) -> list[Path]:
    """Return the pickles of the data set in a folder, in the order of its splits."""
    files = [path for path in folder.iterdir() if path.is_file()]
    found = {match[1].lower(): path for path in files if (match := PICKLE.fullmatch(path.name))}
    return [found[each] for each in SPLITS if each in found]


def _warn_of_missing(place: Path, missing: list[str]) -> None:
    if missing:
        _log.warning("%s lacks %s, so the classes in it are missing", place, " and ".join(missing))


def _listed(tree: FileTree, lists: list[str]) -> tuple[Classes, tuple[str, ...]]:
    """Return the image files of each class, as the csv files list them, and what is left out, in words."""
    places: dict[str, list[str]] = {}
    for image in image_names(tree):
        places.setdefault(image.rpartition("/")[2], []).append(image)
    unlisted = {image for images in places.values() for image in images}
    files: Classes = {}
    for name in lists:
        for row in _rows(tree, name):
            if not row.get("filename") or not row.get("label"):
                raise DataError(f"{tree.place}: every row of {name} needs the columns filename and label")
            same = places.get(row["filename"].rpartition("/")[2], [])
            found = [image for image in same if f"/{image}".endswith(f"/{row['filename']}")] or same
            if len(found) != 1:
                raise DataError(
                    f"{tree.place}: {name} lists {row['filename']}, which is not in images/: obtain it again"
                    if not found
                    else f"{tree.place}: {name} lists {row['filename']}, which may be {listed(found)}: keep one of them"
                )
            if found[0] not in unlisted:
                raise DataError(
                    f"{tree.place}: {name} lists {row['filename']} a second time: keep one row for each image"
                )
            files.setdefault(row["label"], []).append(found[0])
            unlisted.remove(found[0])
    left_out = (f"{len(unlisted):,} images that no csv file lists: {listed(sorted(unlisted))}",) if unlisted else ()
    return {label: sorted(names) for label, names in files.items()}, left_out


def _rows(tree: FileTree, name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a csv file."""
    try:
        yield from csv.DictReader(tree.read_lines(name))
    except csv.Error as error:
        raise DataError(f"{tree.place}: {name} is not a csv file ({error}): obtain it again") from error


def _from_pickles(place: Path, paths: list[Path], size: int, skip_damaged: bool) -> Dataset:
    held = [PICKLE.fullmatch(path.name)[1].lower() for path in paths]  # type: ignore[index]
    _warn_of_missing(place, [f"the pickle of {each}" for each in SPLITS if each not in held])
    source = _PickledImages(place, paths)
    classes = sorted(source.rows)
    files = [ImageFile(name, label) for label, each in enumerate(classes) for name in source.rows[each]]
    return from_files(NAMES[0], source, files, classes, size, skip_damaged)


class _PickledImages:
    """The images in pickles, as a source of images. They are read from the mapped files when they are needed.

    Args:
        place: folder of the pickles.
        paths: the pickles.
    """

    def __init__(self, place: Path, paths: list[Path]) -> None:
        self.place = place
        self.paths = paths
        self.pixels: dict[str, Array] = {}
        self.rows: Classes = {}
        for path in paths:
            content = _plain(load_arrays(_mapped_file(path), str(path)))
            try:
                pixels, members = content["image_data"], content["class_dict"]
                if pixels.dtype != np.uint8 or pixels.shape[1:] != (*pixels.shape[1:3], 3):
                    raise ValueError
                for label, rows in members.items():
                    its = np.arange(len(pixels))[np.asarray(rows)]
                    self.rows.setdefault(str(label), []).extend(f"{path.name}/{row}" for row in its.tolist())
            except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
                raise DataError(f"{path} does not hold image_data and class_dict: obtain it again") from error
            self.pixels[path.name] = pixels

    def fingerprint(self) -> str:
        """Return a text that changes whenever a pickle changes."""
        return str([(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in self.paths])

    def decoded(self, names: Sequence[str], size: int) -> Iterator[Array | DataError]:
        """Yield the pixels (3,size,size) of each image."""
        for count, name in enumerate(names):
            file, row = name.rsplit("/", 1)
            yield resize(self.pixels[file][int(row)].transpose(2, 0, 1)[None], size)[0]
            if count % RELEASE_EVERY == 0 and hasattr(mmap, "MADV_DONTNEED"):
                for pixels in self.pixels.values():
                    _release(pixels)


def _mapped_file(path: Path) -> mmap.mmap:
    """Return a file mapped into memory."""
    with path.open("rb") as file:
        try:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise DataError(f"{path} is empty: obtain it again") from error


def _release(pixels: Array) -> None:
    """Give back the memory that was filled by reading an array of a mapped file."""
    base: Any = pixels
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview) and isinstance(base.obj, mmap.mmap):
        base.obj.madvise(mmap.MADV_DONTNEED)


def _plain(content: Any) -> Any:
    """Return the content with all dictionary keys as text; pickles of Python 2 have them as bytes."""
    if not isinstance(content, dict):
        return content
    return {key.decode() if isinstance(key, bytes) else key: _plain(value) for key, value in content.items()}
