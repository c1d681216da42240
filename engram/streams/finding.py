"""Find a data set in a folder by the names that people give it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar")


def plain_name(name: str) -> str:
    """Return a name in lower case without anything but letters and digits.

    >>> plain_name("mini_ImageNet")
    'miniimagenet'
    """
    return re.sub(r"[^a-z0-9]", "", name.lower())


def find_dataset(root: Path, names: Sequence[str], holds: Callable[[Path], bool], longer: bool = True) -> Path | None:
    """Return the path of a data set: `root` itself, or a folder or an archive in it; None if there is none.

    `root` may be an archive too.

    Args:
        root: folder to look in.
        names: names of the data set, the preferred one first; spelling and punctuation do not matter.
        holds: returns whether a folder is the data set itself.
        longer: whether the name of an archive, or of a folder that is the data set itself, may go on behind the name,
            as in mini-imagenet-subset.zip.
    """
    if root.is_dir() and holds(root):
        return root
    inside = sorted(root.iterdir()) if root.is_dir() else [root]
    return next(_candidates(inside, [plain_name(name) for name in names], holds, longer), None)


def _candidates(
    paths: Sequence[Path], names: Sequence[str], holds: Callable[[Path], bool], longer: bool
) -> Iterator[Path]:
    folders = [path for path in paths if path.is_dir()]
    archives = [(path, stem) for path in paths if path.is_file() and (stem := _stem(path.name))]
    for name in names:
        yield from (path for path in folders if plain_name(path.name) == name)
    for name in names:
        yield from (path for path, stem in archives if plain_name(stem) == name)
    for name in names if longer else ():
        yield from (path for path in folders if plain_name(path.name).startswith(name) and holds(path))
        yield from (path for path, stem in archives if plain_name(stem).startswith(name))


def _stem(name: str) -> str:
    """Return the file name of an archive without its suffix, or an empty text if it is no archive."""
    return next((name[: -len(suffix)] for suffix in ARCHIVES if name.lower().endswith(suffix)), "")
