"""Mini-ImageNet (Vinyals et al., 2016) in the layouts that are in common use.

    images/*.jpg with train.csv, val.csv, test.csv
    one folder per class, with or without train/, val/ and test/ above them
    mini-imagenet-cache-train.pkl, -val.pkl, -test.pkl

The three splits were made for few-shot learning and are joined. The first five sixths of the images of each class are
for training, the others for testing.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np

from engram.streams.class_folders import by_class, split, training_share
from engram.streams.dataset import Array, DataError, Dataset
from engram.streams.decoded import from_files
from engram.streams.files import FileTree, first_existing, open_files
from engram.streams.images import resize
from engram.streams.unpickle import load_arrays

FOLDER = "mini-imagenet"
SPLITS = ("train", "val", "test")
PICKLES = [f"mini-imagenet-cache-{each}.pkl" for each in SPLITS]


def find_mini_imagenet(root: Path) -> Path | None:
    """Return the path of the data set in `root` (`root` itself if it has the pickles), or None if it is not there."""
    if all((root / name).is_file() for name in PICKLES):
        return root
    return first_existing(root, [FOLDER, "miniImageNet", "miniimagenet"], [f"{FOLDER}.zip", f"{FOLDER}*.zip"])


def load_mini_imagenet(place: Path, size: int = 84, skip_damaged: bool = False) -> Dataset:
    """Load the data set.

    Args:
        place: path of the folder or zip archive, or of the folder that has the pickles.
        size: pixels per side of the loaded images.
        skip_damaged: leave out image files that cannot be read, instead of stopping.
    """
    if all((place / name).is_file() for name in PICKLES):
        return _from_pickles(place, size)
    tree = open_files(place, f"{FOLDER}/")
    files = _listed(tree) if "train.csv" in tree else _in_folders(tree)
    classes = sorted(files)
    return from_files("mini-imagenet", tree, split(files, classes), classes, size, skip_damaged)


def _listed(tree: FileTree) -> dict[str, list[str]]:
    """Return the image files of each class, as the three csv files list them."""
    files: dict[str, list[str]] = {}
    for name in (f"{each}.csv" for each in SPLITS):
        for row in csv.DictReader(io.StringIO(tree.read(name).decode())):
            if not row.get("filename") or not row.get("label"):
                raise DataError(f"{tree.place}: every row of {name} needs the columns filename and label")
            file = f"images/{row['filename']}"
            if file not in tree:
                raise DataError(
                    f"{tree.place}: {name} lists {row['filename']}, which is not in images/: obtain it again"
                )
            files.setdefault(row["label"], []).append(file)
    return {label: sorted(names) for label, names in files.items()}


def _in_folders(tree: FileTree) -> dict[str, list[str]]:
    """Return the image files of each class, for the layout with one folder per class."""
    tops = {name.split("/")[0] for name in tree.names()}
    files = by_class(tree, sorted(tops & set(SPLITS)) or [""])
    if not files:
        raise DataError(f"{tree.place} has none of the layouts of Mini-ImageNet: see `engram data info mini-imagenet`")
    return {label: sorted(names) for label, names in files.items()}


def _from_pickles(place: Path, size: int) -> Dataset:
    images: dict[str, Array] = {}
    tree = open_files(place, only=PICKLES)
    for name in PICKLES:
        content = _plain(load_arrays(tree.read(name), f"{place / name}"))
        try:
            pixels, members = content["image_data"], content["class_dict"]
            images |= {label: pixels[np.asarray(rows)].transpose(0, 3, 1, 2) for label, rows in members.items()}
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            raise DataError(f"{place / name} does not hold image_data and class_dict: obtain it again") from error
    classes = sorted(images)
    train = [images[label][: training_share(len(images[label]))] for label in classes]
    test = [images[label][training_share(len(images[label])) :] for label in classes]
    return Dataset(
        "mini-imagenet",
        resize(np.concatenate(train), size),
        np.repeat(np.arange(len(classes)), [len(part) for part in train]),
        resize(np.concatenate(test), size),
        np.repeat(np.arange(len(classes)), [len(part) for part in test]),
        tuple(classes),
    )


def _plain(content: Any) -> Any:
    """Return the content with all dictionary keys as text; pickles of Python 2 have them as bytes."""
    if not isinstance(content, dict):
        return content
    return {key.decode() if isinstance(key, bytes) else key: _plain(value) for key, value in content.items()}
