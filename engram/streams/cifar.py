"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009) as published: the archive, or the folder it unpacks to."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engram.streams.dataset import Array, DataError, Dataset
from engram.streams.files import FileTree, first_existing, open_files
from engram.streams.images import resize
from engram.streams.unpickle import load_arrays

LARGEST_FILE = 200_000_000


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
        md5: checksum of every file that is read, by its name.
    """

    name: str
    folder: str
    archive: str
    train: tuple[str, ...]
    test: str
    meta: str
    labels: bytes
    label_names: bytes
    md5: dict[str, str]


CIFAR100 = CifarFiles(
    name="cifar100",
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    train=("train",),
    test="test",
    meta="meta",
    labels=b"fine_labels",
    label_names=b"fine_label_names",
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
    labels=b"labels",
    label_names=b"label_names",
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
    """Return the path of the data set's folder or archive in `root`, or None if neither is there."""
    return first_existing(root, [files.folder], [files.archive])


def load_cifar(files: CifarFiles, place: Path, size: int = 32) -> Dataset:
    """Load the data set. The checksum of every file is checked first.

    Args:
        files: the files of CIFAR-10 or CIFAR-100.
        place: path of the folder or the archive.
        size: pixels per side of the loaded images.
    """
    contents = _checked(files, open_files(place, f"{files.folder}/"))
    names = load_arrays(contents[files.meta], files.meta)[files.label_names]
    train_x, train_y = _join([load_arrays(contents[name], name) for name in files.train], files.labels)
    test_x, test_y = _join([load_arrays(contents[files.test], files.test)], files.labels)
    return Dataset(
        files.name,
        resize(train_x, size),
        train_y,
        resize(test_x, size),
        test_y,
        tuple(name.decode() for name in names),
    )


def _checked(files: CifarFiles, tree: FileTree) -> dict[str, bytes]:
    missing = [name for name in files.md5 if name not in tree]
    if missing:
        raise DataError(f"{tree.place} lacks {', '.join(missing)}: obtain {files.archive} again")
    contents = tree.read_all(files.md5, LARGEST_FILE)
    for name, md5 in files.md5.items():
        if hashlib.md5(contents[name], usedforsecurity=False).hexdigest() != md5:
            raise DataError(f"{tree.place}: the file {name!r} is damaged (its md5 is not {md5}): obtain it again")
    return contents


def _join(parts: list[dict[bytes, Any]], labels: bytes) -> tuple[Array, Array]:
    x = np.concatenate([part[b"data"] for part in parts]).reshape(-1, 3, 32, 32)
    return x, np.concatenate([np.asarray(part[labels]) for part in parts])
