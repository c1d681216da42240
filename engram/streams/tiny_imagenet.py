"""Tiny-ImageNet-200 as published, or with its validation images sorted into class folders.

    wnids.txt   words.txt   train/<wnid>/images/*.JPEG   val/images/*.JPEG   val/val_annotations.txt
                                                         val/<wnid>/*.JPEG or val/<wnid>/images/*.JPEG

The validation images are the test set, because the published test images have no labels.
"""

from __future__ import annotations

from pathlib import Path

from engram.streams.dataset import DataError, Dataset
from engram.streams.decoded import ImageFile, from_files
from engram.streams.files import FileTree, open_files
from engram.streams.finding import find_dataset, plain_name
from engram.streams.layout import NAMELESS, Classes, image_names, listed, recognize

NAMES = ("tiny-imagenet-200", "tiny-imagenet")
ANNOTATIONS = "val_annotations.txt"


def find_tiny_imagenet(root: Path) -> Path | None:
    """Return the path of the data set in `root`, or `root` if it is the data set itself, or None."""
    return find_dataset(root, NAMES, is_tiny_imagenet)


def is_tiny_imagenet(folder: Path) -> bool:
    """Return whether a folder is the data set itself."""
    named = plain_name(folder.resolve().name) in map(plain_name, NAMES)
    return (folder / "train").is_dir() and (named or (folder / "wnids.txt").is_file())


def load_tiny_imagenet(place: Path, size: int = 64, skip_damaged: bool = False) -> Dataset:
    """Load the data set.

    Args:
        place: path of the folder or the archive.
        size: pixels per side of the loaded images.
        skip_damaged: leave out image files that cannot be read, instead of stopping.
    """
    tree = open_files(place)
    layout = recognize(tree)
    train = layout.splits.get("train")
    if train is None:
        raise DataError(f"{place} has no training images in train/<class>/: obtain it again")
    classes = sorted(train)
    _require_agreement(tree, classes)
    tested = layout.splits.get("val") or _annotated(tree)
    unknown = sorted(tested.keys() - train.keys())
    if unsorted := [name for each in unknown if plain_name(each) in NAMELESS for name in tested[each]]:
        raise DataError(
            f"{place}: val/ has class folders and {len(unsorted):,} images beside them ({listed(unsorted)}): move each "
            "into the folder of its class, or remove them if they are copies"
        )
    if unknown:
        raise DataError(f"{place}: val/ has images of {listed(unknown)}, but train/ has none: obtain it again")
    files = [
        ImageFile(name, label, test)
        for images, test in ((train, False), (tested, True))
        for label, name in _numbered(images, classes, across_classes=test)
    ]
    return from_files(
        "tiny-imagenet",
        tree,
        files,
        _names(tree, classes),
        size,
        skip_damaged,
        (*_unused(tree, files), *layout.ignored),
    )


def _unused(tree: FileTree, files: list[ImageFile]) -> tuple[str, ...]:
    """Return in words which images are not used, such as the published test images, which have no labels."""
    used = {file.name for file in files}
    spare = [name for name in image_names(tree) if name not in used]
    return (f"{len(spare):,} images that are neither training nor validation images: {listed(spare)}",) if spare else ()


def _require_agreement(tree: FileTree, classes: list[str]) -> None:
    """Refuse a data set whose wnids.txt and folders in train/ name different classes."""
    stated = tree.find("wnids.txt")
    named = set(tree.read_lines(stated)) - {""} if stated else set(classes)
    if odd := sorted(named ^ set(classes)):
        raise DataError(
            f"{tree.place}: wnids.txt names {len(named)} classes, train/ holds {len(classes)} "
            f"(they differ in {listed(odd)}): obtain it again"
        )


def _annotated(tree: FileTree) -> Classes:
    """Return the validation images of each class, as val_annotations.txt lists them."""
    stated = tree.find(ANNOTATIONS)
    if stated is None:
        raise DataError(
            f"{tree.place} has no test images: it needs val/images/ with val/{ANNOTATIONS}, or class folders in val/"
        )
    labels = dict(line.split("\t")[:2] for line in tree.read_lines(stated) if "\t" in line)
    found: Classes = {}
    folder = stated.removesuffix(ANNOTATIONS)
    for name in (name for name in image_names(tree) if name.startswith(folder)):
        if (wnid := labels.get(name.rpartition("/")[2])) is None:
            raise DataError(f"{tree.place}: {ANNOTATIONS} does not say the class of {name}: obtain it again")
        found.setdefault(wnid, []).append(name)
    return found


def _numbered(images: Classes, classes: list[str], across_classes: bool) -> list[tuple[int, str]]:
    """Return labels and names of images in the order of their numbers, class by class or across all classes."""
    pairs = [(label, name) for label, wnid in enumerate(classes) for name in images.get(wnid, [])]
    return sorted(pairs, key=lambda pair: (0 if across_classes else pair[0], _by_number(pair[1].rpartition("/")[2])))


def _names(tree: FileTree, classes: list[str]) -> list[str]:
    """Return the first word for each class. If several classes share it, the class id is appended."""
    stated = tree.find("words.txt")
    words = dict(line.split("\t", 1) for line in tree.read_lines(stated) if "\t" in line) if stated else {}
    first = [words.get(wnid, wnid).split(",")[0] for wnid in classes]
    return [f"{word} ({wnid})" if first.count(word) > 1 else word for word, wnid in zip(first, classes, strict=True)]


def _by_number(name: str) -> tuple[str, int]:
    """Return a sort key that puts n01443537_2.JPEG before n01443537_10.JPEG."""
    stem = name.rsplit(".", 1)[0]
    beginning, _, number = stem.rpartition("_")
    return (beginning, int(number)) if number.isdecimal() and len(number) < 20 else (stem, 0)
