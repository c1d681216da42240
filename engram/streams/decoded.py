"""Image files decoded once: later runs map the pixels into memory and start in seconds.

A cache entry is named by what decides its pixels: the files as they are now, the size and the choice to skip damaged
ones. It is built aside and renamed into place, so that two processes may build it at once and neither sees half of it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from platformdirs import user_cache_path

from engram.streams.dataset import Array, DataError, Dataset
from engram.streams.files import FileTree
from engram.streams.images import LARGEST_FILE, decode

FORMAT = 1
"""Raised whenever decoding changes."""
CHUNK = 512
BUILDING = ".building-"
DEAD_AFTER = 24 * 3600
"""Seconds without a change after which nobody is building any more."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImageFile:
    """A file of the tree, its class index, and whether it is a test image."""

    name: str
    label: int
    test: bool


def cache_folder() -> Path:
    """Where decoded images are kept: $ENGRAM_CACHE, or the user's cache."""
    given = os.environ.get("ENGRAM_CACHE")
    return Path(given) if given else user_cache_path("engram")


def from_files(
    name: str,
    tree: FileTree,
    files: Sequence[ImageFile],
    class_names: Sequence[str],
    size: int,
    skip_damaged: bool = False,
) -> Dataset:
    """A data set of image files, decoded now or before."""
    files = sorted(files, key=lambda file: file.test)
    images, kept = _decoded(name, tree, [file.name for file in files], size, skip_damaged)
    left = [files[index] for index in kept]
    train = sum(not file.test for file in left)
    labels = np.array([file.label for file in left], dtype=np.int64)
    return Dataset(name, images[:train], labels[:train], images[train:], labels[train:], tuple(class_names))


def _decoded(name: str, tree: FileTree, names: list[str], size: int, skip_damaged: bool) -> tuple[Array, list[int]]:
    """The pixels of these files and which of them they are (all but the damaged)."""
    facts = json.dumps([FORMAT, tree.fingerprint(), names, size, skip_damaged])
    folder = cache_folder() / "decoded"
    entry = folder / f"{name}-{size}px-{hashlib.sha256(facts.encode()).hexdigest()[:16]}"
    if not entry.is_dir():
        _log.info("decoding %d images of %s once", len(names), name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            building = Path(tempfile.mkdtemp(prefix=BUILDING, dir=folder))
        except OSError as error:
            _log.warning("decoded images cannot be kept in %s (%s): set ENGRAM_CACHE to another folder", folder, error)
            return _decode_all(np.empty((len(names), 3, size, size), np.uint8), tree, names, size, skip_damaged)
        try:
            source = json.dumps({"source": str(tree.place.resolve()), "size": size, "skip_damaged": skip_damaged})
            (building / "source.json").write_text(source)
            _build(building, tree, names, size, skip_damaged)
            _move_into_place(building, entry)
        finally:
            shutil.rmtree(building, ignore_errors=True)
        _forget_outdated(folder, source, entry)
    kept: list[int] = json.loads((entry / "kept.json").read_text())
    return np.load(entry / "images.npy", mmap_mode="r"), kept


def _build(folder: Path, tree: FileTree, names: list[str], size: int, skip_damaged: bool) -> None:
    path = folder / "images.npy"
    try:
        shape = (len(names), 3, size, size)
        pixels = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
        images, kept = _decode_all(pixels, tree, names, size, skip_damaged)
        if len(kept) < len(names):
            np.save(folder / "kept.npy", images)
            os.replace(folder / "kept.npy", path)
        else:
            pixels.flush()
        (folder / "kept.json").write_text(json.dumps(kept))
    except OSError as error:
        raise DataError(f"decoded images cannot be written to {folder.parent} ({error}): free some space") from error


def _decode_all(
    pixels: Array, tree: FileTree, names: list[str], size: int, skip_damaged: bool
) -> tuple[Array, list[int]]:
    """Fill `pixels`; what it holds in the end, and which files those are."""
    kept: list[int] = []

    def one(name: str, content: bytes) -> Array | DataError:
        try:
            return decode(content, size, f"{tree.place}: {name}")
        except DataError as error:
            return error

    with ThreadPoolExecutor() as pool:
        for start in range(0, len(names), CHUNK):
            chunk = names[start : start + CHUNK]
            contents = tree.read_all(chunk, LARGEST_FILE)
            for index, image in enumerate(pool.map(one, chunk, [contents[name] for name in chunk]), start):
                if isinstance(image, DataError):
                    if not skip_damaged:
                        raise image
                    _log.warning("left out: %s", image)
                    continue
                pixels[len(kept)] = image
                kept.append(index)
    return pixels[: len(kept)], kept


def _move_into_place(building: Path, entry: Path) -> None:
    try:
        building.rename(entry)
    except OSError:
        if not entry.is_dir():
            raise


def _forget_outdated(folder: Path, source: str, entry: Path) -> None:
    """Remove what was decoded from the same place before its files changed, and what a dead process left behind."""
    for other in list(folder.iterdir()):
        if other.name.startswith(BUILDING):
            outdated = time.time() - other.stat().st_mtime > DEAD_AFTER
        else:
            outdated = other != entry and (other / "source.json").read_text() == source
        if outdated:
            shutil.rmtree(other, ignore_errors=True)
