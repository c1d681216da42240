"""Images in one folder per class, as in torchvision's ImageFolder, with or without folders for training and test."""

from __future__ import annotations

from pathlib import Path

from engram.streams.dataset import Dataset
from engram.streams.decoded import ImageFile, TreeImages, from_files
from engram.streams.files import FileTree, open_files
from engram.streams.images import Fit
from engram.streams.layout import Classes, recognize, train_and_test

SIZE = 32


def load_folder(place: Path, size: int = SIZE, skip_damaged: bool = False, fit: Fit = "crop") -> Dataset:
    """Load the images in `place/<class>/`, or in `place/train/<class>/` and `place/test/<class>/`.

    See `engram.streams.layout` for what is recognized. Without test images, the last images of each class are the test
    set (see `training_share`).

    Args:
        place: path of the folder.
        size: pixels per side of the loaded images.
        skip_damaged: leave out image files that cannot be read, instead of stopping.
        fit: how an image that is not square becomes one.
    """
    tree = open_files(place)
    train, test, left_out = train_and_test(tree, recognize(tree))
    return load_classes(place.resolve().name, TreeImages(tree, fit), train, test, size, skip_damaged, left_out)


def load_classes(
    name: str,
    source: FileTree | TreeImages,
    train: Classes,
    test: Classes | None,
    size: int,
    skip_damaged: bool,
    left_out: tuple[str, ...] = (),
) -> Dataset:
    """Load image files whose classes are known. Classes are numbered in the order of their names.

    Args:
        name: name of the data set.
        source: the folder or archive that holds the files.
        train: training images of each class.
        test: test images of each class; if None, the last training images of each class are the test images.
        size: pixels per side of the loaded images.
        skip_damaged: leave out image files that cannot be read, instead of stopping.
        left_out: what is left out, in words.
    """
    classes = sorted(train)
    files = [
        ImageFile(file, label, is_test)
        for label, each in enumerate(classes)
        for names, is_test in ((train[each], None if test is None else False), ((test or {}).get(each, []), True))
        for file in names
    ]
    return from_files(name, source, files, classes, size, skip_damaged, left_out)
