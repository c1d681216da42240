"""Recognize how a tree of image files is laid out: which folders are classes, and which are training and test images.

Recognized are, in any spelling and below any number of folders that hold nothing else:

    <class>/*                       train/<class>/*  test/<class>/*  val/<class>/*
    <class>/images/*                <class>/train/*  <class>/test/*

Anything else is refused with a message that shows what was found.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from engram.streams.dataset import DataError
from engram.streams.files import FileTree
from engram.streams.finding import plain_name
from engram.streams.images import HEAD, is_image, looks_like_image

Role = Literal["train", "test", "val"]
Classes = dict[str, list[str]]
"""The names of the image files of each class."""

ROLES: dict[str, Role] = {
    **dict.fromkeys(("train", "training", "trainset", "trainingset", "traindata", "trainingdata"), "train"),
    **dict.fromkeys(("trainimages", "trainingimages"), "train"),
    **dict.fromkeys(("test", "testing", "testset", "testdata", "testimages", "testingimages"), "test"),
    **dict.fromkeys(("val", "valid", "validation", "valset", "validationset", "valimages", "dev"), "val"),
    **dict.fromkeys(("eval", "evaluation", "validationimages"), "val"),
}
"""Folder names of training, test and validation images, as `plain_name` writes them."""
NAMELESS = {"image", "images", "img", "imgs", "jpg", "jpeg", "png"}
"""Names of folders that say nothing about the class of the images in them, as `plain_name` writes them."""
SHOWN = 4
"""Number of names in a message."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Layout:
    """What the image files of a tree are.

    Args:
        splits: the classes of the training, test and validation images; only "train" if they are not kept apart.
        left_out: which images are left out, in words.
        ignored: which other files there are, in words.
    """

    splits: dict[Role, Classes]
    left_out: tuple[str, ...]
    ignored: tuple[str, ...]


@dataclass
class _Folder:
    path: str = ""
    images: list[str] = field(default_factory=list)
    folders: dict[str, _Folder] = field(default_factory=dict)

    def add(self, name: str) -> None:
        """Add an image file by its name."""
        folder = self
        *above, _ = name.split("/")
        for part in above:
            folder = folder.folders.setdefault(part, _Folder(f"{folder.path}{part}/"))
        folder.images.append(name)

    def all_images(self) -> list[str]:
        """Return the image files in this folder and below it."""
        return [*self.images, *(name for folder in self.folders.values() for name in folder.all_images())]

    def named(self) -> bool:
        """Return whether there is a folder in it whose name may be that of a class or of a split."""
        return any(plain_name(name) not in NAMELESS for name in self.folders)


def recognize(tree: FileTree) -> Layout:
    """Return the layout of the image files in `tree`. An unclear layout raises a DataError."""
    ignored = [f"{len(tree.ignored):,} hidden or system files: {listed(tree.ignored)}"] if tree.ignored else []
    top = _Folder()
    images = image_names(tree)
    for name in images:
        top.add(name)
    if others := sorted(tree.sizes.keys() - set(images)):
        ignored.append(f"{len(others):,} files that are no images: {listed(others)}")
    top = _inner(top)
    if not top.images and len(top.folders) == 1:
        (only,) = top.folders.values()
        top = top if only.images or only.named() else only  # as in mini-imagenet/images/, which is no class
    found: dict[Role, Classes] = {}
    for role, folders in _splits(tree, top).items():
        classes: Classes = {}
        for inside in folders:
            for each, names in _classes(tree, inside).items():
                classes.setdefault(each, []).extend(names)
        if classes:
            found[role] = classes
    if not found:
        raise DataError(
            f"{tree.place} has no image in a folder of its class, but {len(images):,} images elsewhere"
            f"{f' ({listed(images)})' if images else ''}: put the images in {tree.place}/<class>/"
        )
    used = {name for classes in found.values() for names in classes.values() for name in names}
    unnamed = [name for name in images if name not in used]
    words = f"{len(unnamed):,} images that are not in the folder of a class: {listed(unnamed)}"
    return Layout(found, (words,) if unnamed else (), tuple(ignored))


def image_names(tree: FileTree) -> list[str]:
    """Return the sorted names of all image files: those with a fitting suffix, or with none and a fitting content."""
    names = tree.names()
    bare = [name for name in names if "." not in name.rpartition("/")[2]]
    images = {name for name, head in tree.heads(bare, HEAD).items() if looks_like_image(head)}
    return [name for name in names if name in images or is_image(name)]


def train_and_test(
    tree: FileTree, layout: Layout, join: bool = False
) -> tuple[Classes, Classes | None, tuple[str, ...]]:
    """Return the training images, the test images (None if there are none) and what is left out, in words.

    Validation images are the test images if there are no others; otherwise they are left out. A warning is logged for
    images that are left out.

    Args:
        tree: the files.
        layout: their layout.
        join: whether splits are joined if no class is in two of them, as in data sets for few-shot learning.
    """
    splits = layout.splits
    every = {each: names for classes in splits.values() for each, names in classes.items()}
    if join and len(every) == sum(map(len, splits.values())):
        splits = {"train": every}
    train, test, left_out = splits.get("train"), splits.get("test", splits.get("val")), layout.left_out
    if train is None:
        raise DataError(f"{tree.place} has {' and '.join(splits)} images but no training images: add a folder train/")
    if "test" in splits and "val" in splits:
        spare = [name for names in splits["val"].values() for name in names]
        left_out += (f"{len(spare):,} validation images, because there are test images: {listed(spare)}",)
    if test is not None and not test.keys() & train.keys():
        raise DataError(
            f"{tree.place}: the training images ({listed(sorted(train))}) and the test images ({listed(sorted(test))}) "
            "have no class in common: to let the test images be taken from each class, put all classes into one folder"
        )
    if test is not None and (unknown := sorted(test.keys() - train.keys())):
        alike = [each for each in sorted(train) if plain_name(each) == plain_name(unknown[0])]
        remedy = f"rename it, if it is the class {alike[0]!r} of the training images" if alike else "add some"
        raise DataError(f"{tree.place}: class {unknown[0]!r} has test images but no training image: {remedy}")
    for words in left_out:
        _log.warning("%s: left out %s", tree.place, words)
    return train, test, left_out + layout.ignored


def listed(names: Iterable[str], most: int = SHOWN) -> str:
    """Return the first `most` of these names, for a message. Characters that are not printable are escaped."""
    every = list(names)
    shown = [name if name.isprintable() else repr(name) for name in every[:most]]
    return ", ".join(shown) + (", …" if len(every) > most else "")


def _inner(folder: _Folder) -> _Folder:
    """Return the folder below which classes or splits begin: folders that only hold one other folder are passed."""
    while not folder.images and len(folder.folders) == 1:
        (only,) = folder.folders.values()
        if not only.named() or only.images:
            break
        if all(plain_name(name) in ROLES and not inside.folders for name, inside in only.folders.items()):
            break  # one class, with its training and test images
        folder = only
    return folder


def _splits(tree: FileTree, top: _Folder) -> dict[Role, list[_Folder]]:
    """Return the folders of training, test and validation images, each with one folder per class."""
    roles = {name: ROLES.get(plain_name(name)) for name in top.folders}
    split = [name for name, role in roles.items() if role]
    classes = [name for name, role in roles.items() if not role]
    if not split:
        return _splits_in_classes(top) or {"train": [top]}
    if not classes and len({roles[name] for name in split}) == len(split) and len(split) > 1:
        return {role: [top.folders[name]] for name, role in roles.items() if role}
    if classes and len(split) == 1 and top.folders[split[0]].images:
        return {"train": [top]}  # a class that is called train, such as the vehicle
    if not classes and len(split) == 1:
        return {"train": [top.folders[split[0]]]}
    shown = listed(f"{name}/" for name in [*split, *classes])
    raise DataError(
        f"{tree.place}: it is unclear which folders hold training images, test images and classes. It has {shown}: "
        "keep one folder train/ and one folder test/ with the class folders in them, or only the class folders"
    )


def _splits_in_classes(top: _Folder) -> dict[Role, list[_Folder]]:
    """Return the splits for the layout <class>/train/, <class>/test/; empty if it is another one."""
    found: dict[Role, list[_Folder]] = {}
    for name, folder in top.folders.items():
        if folder.images:
            return {}
        for inner, images in folder.folders.items():
            role = ROLES.get(plain_name(inner))
            if role is None or images.folders:
                return {}
            found.setdefault(role, []).append(_Folder(folder.path, folders={name: images}))
    return found


def _classes(tree: FileTree, top: _Folder) -> Classes:
    """Return the image files of each class."""
    top = _inner(top)
    if not top.named():
        return {}
    classes: Classes = {}
    for name, folder in top.folders.items():
        if not folder.images and folder.named():
            raise DataError(_unclear(tree, top, folder))
        classes[name] = sorted(folder.all_images())
    return classes


def _unclear(tree: FileTree, top: _Folder, folder: _Folder) -> str:
    """Return in words why it is unclear which folders are the classes, and what to do."""
    place, inner = f"{tree.place}: {folder.path}", listed(folder.folders)
    beside = [
        each for each in top.folders.values() if each is not folder and each.folders.keys() & folder.folders.keys()
    ]
    if beside:
        return (
            f"{place} and {beside[0].path} both have folders named {inner}, so it is unclear what the two are: rename "
            "them to train/ and test/ if they hold training and test images of these classes"
        )
    return (
        f"{place} has no images itself but the folders {inner}, so it is unclear which of the two are the classes: "
        f"move these folders up into {top.path or './'} if they are the classes, or the images in them into "
        f"{folder.path} if it is one"
    )
