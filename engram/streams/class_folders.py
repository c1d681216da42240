"""One folder a class, as in torchvision's ImageFolder, and the split of classes that come without a test set."""

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
    """Of a class without a test set: the first five sixths of its images train, and one at least."""
    return max(1, count * 5 // 6)


def split(files: dict[str, list[str]], classes: list[str]) -> list[ImageFile]:
    """Each class's files, the last ones for testing."""
    return [
        ImageFile(name, label, test=position >= training_share(len(files[each])))
        for label, each in enumerate(classes)
        for position, name in enumerate(files[each])
    ]


def load_folder(place: Path, size: int = SIZE, skip_damaged: bool = False) -> Dataset:
    """Images of `place/<class>/`, split by the rule above, or of `place/train/<class>/` and `place/test/<class>/`."""
    tree = open_files(place)
    tops = {name.split("/")[0] for name in tree.names() if is_image(name)}
    training, testing = tops & set(TRAINING), tops & set(TEST)
    if training and testing:
        members = by_class(tree, training)
        classes = sorted(members)
        tested = by_class(tree, sorted(testing))
        if unknown := sorted(tested.keys() - members.keys()):
            raise DataError(f"{place}: class {unknown[0]!r} has test images but no training image")
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
        raise DataError(f"{place} holds no image in a folder of its class: put them in {place}/<class>/")
    return from_files(place.resolve().name, tree, files, classes, size, skip_damaged)


def by_class(tree: FileTree, tops: Iterable[str]) -> dict[str, list[str]]:
    """Image files by the name of their folder below `tops`, sorted."""
    found: dict[str, list[str]] = {}
    for top in tops:
        depth = 1 if top else 0
        for name in tree.names(f"{top}/" if top else ""):
            parts = name.split("/")
            if is_image(name) and len(parts) > depth + 1:
                found.setdefault(parts[depth], []).append(name)
    return found
