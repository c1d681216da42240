"""Entries of the cache of decoded images: folders with the pixels and a description of them.

An entry is built in a temporary folder, which its builder holds locked, and then renamed. So two processes can build
the same entry at the same time, and neither sees an incomplete one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from platformdirs import user_cache_path

from engram.persistence.building import is_abandoned, remove_lock
from engram.persistence.files import NotAPlainFileError, open_plain, read_plain
from engram.persistence.parsing import parse_json
from engram.streams.dataset import Array, DataError, Dataset

PIXELS, FACTS = "pixels.raw", "facts.json"
"""Files of a cache entry: the pixels of all images, and a description of them."""
BUILDING = ".building-"
"""Prefix of the folders in which entries are built."""
LARGEST_FACTS = 1 << 26
"""Most bytes of the description of an entry."""
DAMAGED = (OSError, ValueError, KeyError, TypeError, NotAPlainFileError)
"""What is raised if an entry is not whole."""
BLOCK = 1 << 24
"""Number of bytes that are read at a time for a checksum."""

_log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Return the folder in which decoded images are kept: $ENGRAM_CACHE, or the user's cache folder."""
    given = os.environ.get("ENGRAM_CACHE")
    return (Path(given) if given else user_cache_path("engram")) / "decoded"


def pixels_intact(data: Dataset) -> bool:
    """Return whether the pixels of a data set are those that were decoded; if not, they are removed from the cache.

    Data sets that are not in the cache are always intact.
    """
    file = getattr(data.train_x, "filename", None)
    entry = Path(file).parent if file is not None else None
    if entry is None or entry.parent != cache_folder().resolve():
        return True
    with suppress(*DAMAGED):
        if read_facts(entry)["sha256"] == checksum(entry / PIXELS):
            return True
    _log.warning("the decoded images in %s are damaged: they are made again", entry)
    remove_entry(entry)
    return False


@dataclass(frozen=True)
class CacheEntry:
    """An entry of the cache.

    Args:
        path: folder of the entry.
        bytes: number of bytes of its files.
        source: path of the folder or archive with the image files.
    """

    path: Path
    bytes: int
    source: str


def cache_entries() -> list[CacheEntry]:
    """Return the entries of the cache, and what unfinished decodings left there."""
    found = []
    for path in sorted(cache_folder().iterdir()) if cache_folder().is_dir() else []:
        if path.is_dir():
            source = "not finished" if path.name.startswith(BUILDING) else "damaged"
            with suppress(*DAMAGED):
                source = str(read_facts(path)["source"])
            found.append(CacheEntry(path, sum(file.stat().st_size for file in path.iterdir()), source))
    return found


def clear_cache() -> int:
    """Remove the decoded images of all data sets, except entries that are being made, and return their bytes."""
    freed = 0
    for entry in cache_entries():
        if not entry.path.name.startswith(BUILDING) or is_abandoned(entry.path, 0):
            remove_entry(entry.path)
            freed += entry.bytes
    return freed


def open_entry(entry: Path, size: int, count: int) -> tuple[Array, list[int], list[str]] | None:
    """Return pixels, positions and messages about damaged images of an entry; None if it is not whole."""
    with suppress(*DAMAGED):
        found = read_facts(entry)
        kept, damaged = found["kept"], found["damaged"]
        shape = (len(kept), 3, size, size)
        right = sorted(kept) == sorted(set(kept) & set(range(count))) and all(type(each) is str for each in damaged)
        if right and (entry / PIXELS).stat().st_size == len(kept) * 3 * size * size:
            pixels = np.memmap(entry / PIXELS, np.uint8, "r", shape=shape) if kept else np.empty(shape, np.uint8)
            return pixels, kept, damaged
    return None


def move_into_place(building: Path, entry: Path, size: int, count: int) -> None:
    """Rename a finished entry. If another process was faster, its entry is kept; a damaged one is removed."""
    remove_lock(building)
    for _ in range(2):
        try:
            building.rename(entry)
        except OSError as error:
            if open_entry(entry, size, count) is not None:
                return
            if not entry.exists():
                raise DataError(f"{entry} cannot be made ({error}): set ENGRAM_CACHE to another folder") from error
            remove_entry(entry)
        else:
            return


def read_facts(entry: Path) -> Any:
    """Return the description of an entry. One of `DAMAGED` is raised if there is none that can be read."""
    return parse_json(read_plain(entry / FACTS, LARGEST_FACTS))


def remove_entry(entry: Path) -> None:
    (entry / FACTS).unlink(missing_ok=True)
    shutil.rmtree(entry, ignore_errors=True)


def forget_outdated(folder: Path, source: dict[str, Any], entry: Path) -> None:
    """Remove entries of the same source from before its files changed, and unfinished entries of dead processes."""
    for other in list(folder.iterdir()):
        with suppress(*DAMAGED, AttributeError):
            if other.name.startswith(BUILDING):
                outdated = is_abandoned(other)
            else:
                outdated = other != entry and read_facts(other).items() >= source.items()
            if outdated:
                remove_entry(other)


def checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with open(open_plain(path, os.O_RDONLY), "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
