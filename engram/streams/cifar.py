"""CIFAR-100 (Krizhevsky, 2009) as its publisher ships it: the archive, or the folder it unpacks to."""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from pathlib import Path

import numpy as np

from engram.streams.dataset import DataError, Dataset, data_folder
from engram.streams.unpickle import load_arrays

FOLDER, ARCHIVE = "cifar-100-python", "cifar-100-python.tar.gz"
SOURCE = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
MEMBERS = {
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
"""The files of the data set and their md5."""


def load_cifar100(root: Path | None = None) -> Dataset:
    """CIFAR-100 from `root` (default: the data folder), every file checked before it is read."""
    root = root or data_folder()
    if (root / FOLDER).is_dir():
        place, contents = root / FOLDER, _read_folder(root / FOLDER)
    elif (root / ARCHIVE).is_file():
        place, contents = root / ARCHIVE, _read_archive(root / ARCHIVE)
    else:
        raise DataError(
            f"CIFAR-100 was not found in {root}: put {ARCHIVE} (from {SOURCE}) or the folder it unpacks to there, "
            "or set ENGRAM_DATA to the folder that holds it"
        )
    for name, md5 in MEMBERS.items():
        if hashlib.md5(contents[name], usedforsecurity=False).hexdigest() != md5:
            raise DataError(f"{place}: the file {name!r} is damaged (its md5 is not {md5}): obtain it again ({SOURCE})")
    train, test = load_arrays(contents["train"]), load_arrays(contents["test"])
    names = tuple(name.decode() for name in load_arrays(contents["meta"])[b"fine_label_names"])
    return Dataset(
        "cifar100",
        train[b"data"].reshape(-1, 3, 32, 32),
        np.array(train[b"fine_labels"]),
        test[b"data"].reshape(-1, 3, 32, 32),
        np.array(test[b"fine_labels"]),
        names,
    )


def _read_folder(folder: Path) -> dict[str, bytes]:
    missing = [name for name in MEMBERS if not (folder / name).is_file()]
    if missing:
        raise DataError(f"{folder}: missing {', '.join(missing)}: unpack {ARCHIVE} again ({SOURCE})")
    return {name: (folder / name).read_bytes() for name in MEMBERS}


def _read_archive(path: Path) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                folder, _, name = member.name.rpartition("/")
                file = archive.extractfile(member) if folder == FOLDER and name in MEMBERS else None
                if file is not None:
                    contents[name] = file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} is damaged or cut off ({error}): obtain it again ({SOURCE})") from error
    missing = [name for name in MEMBERS if name not in contents]
    if missing:
        raise DataError(f"{path} lacks {', '.join(missing)}: obtain it again ({SOURCE})")
    return contents
