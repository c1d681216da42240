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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from platformdirs import user_cache_path

from engram.checkpoint import write_json
from engram.streams.dataset import Array, DataError, Dataset
from engram.streams.files import FileTree
from engram.streams.images import LARGEST_FILE, decode

FORMAT = 2
"""Raised whenever decoding changes."""
CHUNK = 512
PIXELS, FACTS = "pixels.raw", "facts.json"
"""Of an entry: the images one after the other, and what they are; the second is written last and removed first."""
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
    """The pixels of these files and which of them they are (all but the damaged, each named in a warning)."""
    facts = json.dumps([FORMAT, tree.fingerprint(), names, size, skip_damaged])
    folder = cache_folder() / "decoded"
    entry = folder / f"{name}-{size}px-{hashlib.sha256(facts.encode()).hexdigest()[:16]}"
    if not (entry / FACTS).is_file():
        _log.info("decoding %d images of %s once", len(names), name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            building = Path(tempfile.mkdtemp(prefix=BUILDING, dir=folder))
        except OSError as error:
            _log.warning("decoded images cannot be kept in %s (%s): set ENGRAM_CACHE to another folder", folder, error)
            decoder = _Decoder(tree, names, size, skip_damaged)
            images = np.concatenate([np.empty((0, 3, size, size), np.uint8), *decoder.chunks()])
            decoder.name_damaged()
            return images, decoder.kept
        source = {"source": str(tree.place.resolve()), "size": size, "skip_damaged": skip_damaged}
        try:
            _build(building, _Decoder(tree, names, size, skip_damaged), source)
            _move_into_place(building, entry)
        finally:
            shutil.rmtree(building, ignore_errors=True)
        _forget_outdated(folder, source, entry)
    found = json.loads((entry / FACTS).read_text())
    for message in found["damaged"]:
        _log.warning("left out: %s", message)
    kept: list[int] = found["kept"]
    shape = (len(kept), 3, size, size)
    pixels = np.memmap(entry / PIXELS, np.uint8, "r", shape=shape) if kept else np.empty(shape, np.uint8)
    return pixels, kept


class _Decoder:
    """Decodes files in order; what is damaged stops it, or is left out and noted."""

    def __init__(self, tree: FileTree, names: list[str], size: int, skip_damaged: bool) -> None:
        self.tree, self.names, self.size, self.skip_damaged = tree, names, size, skip_damaged
        self.kept: list[int] = []
        self.damaged: list[str] = []

    def chunks(self) -> Iterator[Array]:
        with ThreadPoolExecutor() as pool:
            for start in range(0, len(self.names), CHUNK):
                images = []
                contents = self._contents(self.names[start : start + CHUNK])
                for index, image in enumerate(pool.map(self._decode, *zip(*contents, strict=True)), start):
                    if isinstance(image, DataError):
                        self._note(image)
                    else:
                        images.append(image)
                        self.kept.append(index)
                if images:
                    yield np.stack(images)

    def name_damaged(self) -> None:
        for message in self.damaged:
            _log.warning("left out: %s", message)

    def _contents(self, names: list[str]) -> list[tuple[str, bytes | DataError]]:
        try:
            return list(self.tree.read_all(names, LARGEST_FILE).items())
        except DataError:
            return [(name, self._content(name)) for name in names]

    def _content(self, name: str) -> bytes | DataError:
        try:
            return self.tree.read(name, LARGEST_FILE)
        except DataError as error:
            return DataError(f"{error} ({name})")

    def _decode(self, name: str, content: bytes | DataError) -> Array | DataError:
        if isinstance(content, DataError):
            return content
        try:
            return decode(content, self.size, f"{self.tree.place}: {name}")
        except DataError as error:
            return error

    def _note(self, error: DataError) -> None:
        if not self.skip_damaged:
            raise error
        self.damaged.append(str(error))


def _build(folder: Path, decoder: _Decoder, source: dict[str, Any]) -> None:
    try:
        with (folder / PIXELS).open("wb") as file:
            for chunk in decoder.chunks():
                file.write(chunk.tobytes())
            file.flush()
            os.fsync(file.fileno())
        write_json(folder / FACTS, source | {"kept": decoder.kept, "damaged": decoder.damaged})
    except OSError as error:
        raise DataError(f"decoded images cannot be written to {folder.parent} ({error}): free some space") from error


def _move_into_place(building: Path, entry: Path) -> None:
    try:
        building.rename(entry)
    except OSError:
        if not (entry / FACTS).is_file():
            raise


def _forget_outdated(folder: Path, source: dict[str, Any], entry: Path) -> None:
    """Remove what was decoded from the same place before its files changed, and what a dead process left behind."""
    for other in list(folder.iterdir()):
        with suppress(OSError, ValueError):
            if other.name.startswith(BUILDING):
                outdated = time.time() - other.stat().st_mtime > DEAD_AFTER
            else:
                outdated = other != entry and json.loads((other / FACTS).read_text()).items() >= source.items()
            if outdated:
                (other / FACTS).unlink(missing_ok=True)
                shutil.rmtree(other, ignore_errors=True)
