"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009) as published: the archive, or the folder it unpacks to."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engram.streams.dataset import Array, DataError, Dataset, names_as_labels
from engram.streams.files import open_files
from engram.streams.finding import find_dataset
from engram.streams.images import resize
from engram.streams.unpickle import load_arrays

LARGEST_FILE = 200_000_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CifarFiles:
    """The files of CIFAR-10 or CIFAR-100.

    Args:
        name: name of the data set.
        folder: name of the folder that the archive unpacks to.
        archive: file name of the archive.
        train: names of the files with training images.
        test: name of the file with test images.
        meta: name of the file with the class names.
        labels: key of the labels in the files with images.
        label_names: key of the class names in the file `meta`.
        md5: checksum of every file as published, by its name.
    """

    name: str
    folder: str
    archive: str
    train: tuple[str, ...]
    test: str
    meta: str
    labels: str
    label_names: str
    md5: dict[str, str]


CIFAR100 = CifarFiles(
    name="cifar100",
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    train=("train",),
    test="test",
    meta="meta",
    labels="fine_labels",
    label_names="fine_label_names",
    md5={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
)
CIFAR10 = CifarFiles(
    name="cifar10",
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    train=("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"),
    test="test_batch",
    meta="batches.meta",
    labels="labels",
    label_names="label_names",
    md5={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    },
)


def find_cifar(files: CifarFiles, root: Path) -> Path | None:
    """Return the path of the data set in `root`, or `root` if it is the data set itself, or None."""
    names = (files.folder, files.archive.removesuffix(".tar.gz"), files.name)
    return find_dataset(root, names, lambda folder: _is_cifar(files, folder), longer=False)


def _is_cifar(files: CifarFiles, folder: Path) -> bool:
    return all((folder / name).is_file() for name in files.md5)


def load_cifar(files: CifarFiles, place: Path, size: int = 32) -> Dataset:
    """Load the data set. Files that differ from the published ones are accepted if their content is valid.

    Args:
        files: the files of CIFAR-10 or CIFAR-100.
        place: path of the folder or the archive.
        size: pixels per side of the loaded images.
    """
    contents = _contents(files, place)
    names = contents[files.meta].get(files.label_names)
    if not isinstance(names, list | tuple) or not all(isinstance(name, str | bytes) for name in names):
        raise DataError(f"{place}: the file {files.meta!r} does not hold {files.label_names!r}: obtain it again")
    train = [_images(files, contents[name], name, place, len(names)) for name in files.train]
    test_x, test_y = _images(files, contents[files.test], files.test, place, len(names))
    train_x, train_y = (np.concatenate(parts) if len(parts) > 1 else parts[0] for parts in zip(*train, strict=True))
    class_names = tuple(name.decode() if isinstance(name, bytes) else name for name in names)
    labels = names_as_labels(files.name, class_names)
    return Dataset(files.name, resize(train_x, size), train_y, resize(test_x, size), test_y, class_names, labels=labels)


def _contents(files: CifarFiles, place: Path) -> dict[str, dict[str, Any]]:
    """Return the content of every file, by its name. A checksum that is not the published one is a warning."""
    tree = open_files(place)
    meta = tree.find(files.meta)
    tree = tree.below(meta.removesuffix(files.meta) if meta else "")
    missing = [name for name in files.md5 if name not in tree]
    if missing:
        raise DataError(f"{tree.place} lacks {', '.join(missing)}: obtain {files.archive} again")
    contents = tree.read_all(files.md5, LARGEST_FILE)
    for name, md5 in files.md5.items():
        if hashlib.md5(contents[name], usedforsecurity=False).hexdigest() != md5:
            _log.warning("%s: the file %r is not the published one (md5 %s); its content is checked", place, name, md5)
    return {name: _dictionary(content, name, place) for name, content in contents.items()}


def _dictionary(content: bytes, name: str, place: Path) -> dict[str, Any]:
    """Return the dictionary in a pickle, with text as keys."""
    values = load_arrays(content, f"{place}: the file {name!r}")
    if not isinstance(values, dict):
        raise DataError(f"{place}: the file {name!r} does not hold a dictionary: obtain it again")
    return {key.decode("latin1") if isinstance(key, bytes) else str(key): value for key, value in values.items()}


def _images(files: CifarFiles, part: dict[str, Any], name: str, place: Path, classes: int) -> tuple[Array, Array]:
    """Return the images and labels of a file after checking them."""
    x, y = part.get("data"), np.asarray(part.get(files.labels, []))
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.shape[1:] not in ((3072,), (3, 32, 32)):
        raise DataError(f"{place}: the file {name!r} does not hold images of 3×32×32 bytes: obtain it again")
    if y.shape != (len(x),) or y.dtype.kind not in "iu" or not len(y) or y.min() < 0 or y.max() >= classes:
        raise DataError(
            f"{place}: the file {name!r} does not hold one label from 0 to {classes - 1} for each of its {len(x):,} "
            "images: obtain it again"
        )
    return x.reshape(-1, 3, 32, 32), y.astype(np.int64)
