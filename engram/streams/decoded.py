"""A cache of decoded images. Image files are decoded once; later runs map the pixels into memory and start in seconds.

The name of a cache entry is a hash of everything that its pixels depend on: the current files, the image size, and
whether damaged files are skipped. An entry is built in a temporary folder and then renamed. So two processes can build
the same entry at the same time, and neither sees an incomplete one.
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

from engram.persistence.files import write_json
from engram.streams.dataset import Array, DataError, Dataset
from engram.streams.files import FileTree
from engram.streams.images import LARGEST_FILE, decode

FORMAT = 2
"""Version of the cache. It is increased whenever decoding changes."""
CHUNK = 512
"""Number of images that are decoded at a time."""
PIXELS, FACTS = "pixels.raw", "facts.json"
"""Files of a cache entry: the pixels of all images, and a description of them.

The description is written last and removed first, so an entry that has it is complete.
"""
BUILDING = ".building-"
"""Prefix of the folders in which entries are built."""
DEAD_AFTER = 24 * 3600
"""Seconds without a change after which a folder of an unfinished entry is removed."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImageFile:
    """An image file of a data set.

    Args:
        name: name of the file in its `FileTree`.
        label: index of its class.
        test: whether it is a test image; otherwise it is a training image.
    """

    name: str
    label: int
    test: bool


def cache_folder() -> Path:
    """Return the folder in which decoded images are kept: $ENGRAM_CACHE, or the user's cache folder."""
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
    """Make a data set from image files. The files are decoded unless their pixels are in the cache.

    Args:
        name: name of the data set.
        tree: the folder or archive that holds the files.
        files: the image files.
        class_names: name of each class.
        size: pixels per side of the decoded images.
        skip_damaged: leave out image files that cannot be read, instead of stopping.
    """
    files = sorted(files, key=lambda file: file.test)
    images, kept = _decoded(name, tree, [file.name for file in files], size, skip_damaged)
    left = [files[index] for index in kept]
    train = sum(not file.test for file in left)
    labels = np.array([file.label for file in left], dtype=np.int64)
    return Dataset(name, images[:train], labels[:train], images[train:], labels[train:], tuple(class_names))


def _decoded(name: str, tree: FileTree, names: list[str], size: int, skip_damaged: bool) -> tuple[Array, list[int]]:
    """Return the pixels of the files, and the positions in `names` of the files that were decoded.

    A warning is logged for each damaged file that is left out.
    """
    facts = json.dumps([FORMAT, tree.fingerprint(), names, size, skip_damaged])
    folder = cache_folder() / "decoded"
    entry = folder / f"{name}-{size}px-{hashlib.sha256(facts.encode()).hexdigest()[:16]}"
    if not (entry / FACTS).is_file():
        _log.info("decoding %d images of %s; this is done only once", len(names), name)
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
    """Decodes files in order. A damaged file raises a DataError, or is left out and listed in `damaged`."""

    def __init__(self, tree: FileTree, names: list[str], size: int, skip_damaged: bool) -> None:
        self.tree, self.names, self.size, self.skip_damaged = tree, names, size, skip_damaged
        self.kept: list[int] = []
        self.damaged: list[str] = []

    def chunks(self) -> Iterator[Array]:
        """Yield the decoded images, at most `CHUNK` at a time."""
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
        """Log a warning for each file that was left out."""
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
    """Write the files of a cache entry into `folder`."""
    try:
        with (folder / PIXELS).open("wb") as file:
            for chunk in decoder.chunks():
                file.write(chunk.tobytes())
            file.flush()
            os.fsync(file.fileno())
        write_json(folder / FACTS, source | {"kept": decoder.kept, "damaged": decoder.damaged})
    except OSError as error:
        raise DataError(
            f"decoded images cannot be written to {folder.parent} ({error}): free some space there"
        ) from error


def _move_into_place(building: Path, entry: Path) -> None:
    """Rename a finished entry. If another process was faster, its entry is kept."""
    try:
        building.rename(entry)
    except OSError:
        if not (entry / FACTS).is_file():
            raise


def _forget_outdated(folder: Path, source: dict[str, Any], entry: Path) -> None:
    """Remove entries of the same source from before its files changed, and unfinished entries of dead processes."""
    for other in list(folder.iterdir()):
        with suppress(OSError, ValueError):
            if other.name.startswith(BUILDING):
                outdated = time.time() - other.stat().st_mtime > DEAD_AFTER
            else:
                outdated = other != entry and json.loads((other / FACTS).read_text()).items() >= source.items()
            if outdated:
                (other / FACTS).unlink(missing_ok=True)
                shutil.rmtree(other, ignore_errors=True)
