"""Images in one folder per class, as in torchvision's ImageFolder, and the split of data sets without a test set."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from engram.streams.dataset import DataError, Dataset
from engram.streams.decoded import ImageFile, from_files
from engram.streams.files import FileTree, open_files
from engram.streams.images import is_image

TRAINING, TEST = ("train",), ("test", "val", "valid", "validation")
SIZE = 32


def training_share(count: int) -> int:
    """Return how many of the `count` images of a class are for training: the first five sixths, at least one."""
    return max(1, count * 5 // 6)


def split(files: dict[str, list[str]], classes: list[str]) -> list[ImageFile]:
    """Split the files of each class into training and test images. The last files of a class are its test images.

    Args:
        files: names of image files, by class.
        classes: the classes, in the order of their labels.
    """
    return [
        ImageFile(name, label, test=position >= training_share(len(files[each])))
        for label, each in enumerate(classes)
        for position, name in enumerate(files[each])
    ]


def load_folder(place: Path, size: int = SIZE, skip_damaged: bool = False) -> Dataset:
    """Load the images in `place/<class>/`, or in `place/train/<class>/` and `place/test/<class>/`.

    The test folder may also be named val, valid or validation. If there is no separate training or test folder, the
    last images of each class are the test set (see `training_share`).

    Args:
        place: path of the folder.
        size: pixels per side of the loaded images.
        skip_damaged: leave out image files that cannot be read, instead of stopping.
    """
    tree = open_files(place)
    tops = {name.split("/")[0] for name in tree.names() if is_image(name)}
    training, testing = tops & set(TRAINING), tops & set(TEST)
    if training and testing:
        members = by_class(tree, training)
        classes = sorted(members)
        tested = by_class(tree, sorted(testing))
        if unknown := sorted(tested.keys() - members.keys()):
            raise DataError(f"{place}: class {unknown[0]!r} has test images but no training image: add some")
        files = [
            ImageFile(name, label, test)
            for label, each in enumerate(classes)
            for names, test in ((members[each], False), (tested.get(each, []), True))
            for name in names
        ]
    else:
        members = by_class(tree, sorted(tops) if tops in (training, testing) else [""])
        classes = sorted(members)
        files = split(members, classes)
    if not classes:
        raise DataError(f"{place} has no image in a folder of its class: put the images in {place}/<class>/")
    return from_files(place.resolve().name, tree, files, classes, size, skip_damaged)


def by_class(tree: FileTree, tops: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of all image files by class. Class folders are those directly below the folders `tops`.

    Args:
        tree: the files.
        tops: names of folders; an empty name stands for the top of the tree.
    """
    found: dict[str, list[str]] = {}
    for top in tops:
        depth = 1 if top else 0
        for name in tree.names(f"{top}/" if top else ""):
            parts = name.split("/")
            if is_image(name) and len(parts) > depth + 1:
                found.setdefault(parts[depth], []).append(name)
    return found
