"""Tiny-ImageNet-200 as published: the zip archive, or the folder it unpacks to.

    wnids.txt   words.txt   train/<wnid>/images/*.JPEG   val/images/*.JPEG   val/val_annotations.txt

The validation images are the test set, because the published test images have no labels.
"""

from __future__ import annotations

from pathlib import Path

from engram.streams.dataset import DataError, Dataset
from engram.streams.decoded import ImageFile, from_files
from engram.streams.files import FileTree, first_existing, open_files
from engram.streams.images import is_image

FOLDER = "tiny-imagenet-200"


def find_tiny_imagenet(root: Path) -> Path | None:
    """Return the path of the data set's folder or archive in `root`, or None if neither is there."""
    return first_existing(root, [FOLDER], [f"{FOLDER}.zip", f"{FOLDER}*.zip"])


def load_tiny_imagenet(place: Path, size: int = 64, skip_damaged: bool = False) -> Dataset:
    """Load the data set.

    Args:
        place: path of the folder or the zip archive.
        size: pixels per side of the loaded images.
        skip_damaged: leave out image files that cannot be read, instead of stopping.
    """
    tree = open_files(place, f"{FOLDER}/")
    classes = _classes(tree)
    index = {wnid: position for position, wnid in enumerate(classes)}
    files = [*_training(tree, index), *_validation(tree, index)]
    return from_files("tiny-imagenet", tree, files, _names(tree, classes), size, skip_damaged)


def _classes(tree: FileTree) -> list[str]:
    """Return the ids of the classes, sorted. wnids.txt and the folders in train/ must agree on them."""
    classes = sorted(_lines(tree, "wnids.txt"))
    found = {name.split("/")[1] for name in tree.names("train/") if name.count("/") > 1}
    if found != set(classes):
        odd = sorted(found ^ set(classes))
        raise DataError(
            f"{tree.place}: wnids.txt names {len(classes)} classes, train/ holds {len(found)} "
            f"(they differ in {', '.join(odd[:3])}{', …' if len(odd) > 3 else ''}): obtain it again"
        )
    return classes


def _training(tree: FileTree, index: dict[str, int]) -> list[ImageFile]:
    names = [name for name in tree.names("train/") if is_image(name)]
    return [ImageFile(name, index[name.split("/")[1]], test=False) for name in sorted(names, key=_by_number)]


def _validation(tree: FileTree, index: dict[str, int]) -> list[ImageFile]:
    annotations = dict(line.split("\t")[:2] for line in _lines(tree, "val/val_annotations.txt") if "\t" in line)
    files = []
    for name in sorted((name for name in tree.names("val/images/") if is_image(name)), key=_by_number):
        wnid = annotations.get(name.rsplit("/", 1)[1])
        if wnid not in index:
            raise DataError(f"{tree.place}: val_annotations.txt does not say the class of {name}: obtain it again")
        files.append(ImageFile(name, index[wnid], test=True))
    return files


def _names(tree: FileTree, classes: list[str]) -> list[str]:
    """Return the first word for each class. If several classes share it, the class id is appended."""
    words = (
        dict(line.split("\t", 1) for line in _lines(tree, "words.txt") if "\t" in line) if "words.txt" in tree else {}
    )
    first = [words.get(wnid, wnid).split(",")[0] for wnid in classes]
    return [f"{word} ({wnid})" if first.count(word) > 1 else word for word, wnid in zip(first, classes, strict=True)]


def _lines(tree: FileTree, name: str) -> list[str]:
    return tree.read(name).decode().splitlines()


def _by_number(name: str) -> tuple[str, int]:
    """Return a sort key that puts n01443537_2.JPEG before n01443537_10.JPEG."""
    stem = name.rsplit(".", 1)[0]
    beginning, _, number = stem.rpartition("_")
    return (beginning, int(number)) if number.isdigit() else (stem, 0)
