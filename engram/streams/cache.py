"""A cache of decoded images. Images are decoded once; later runs map the pixels into memory and start in seconds.

The name of a cache entry is a hash of everything that its pixels depend on: the current files, the image size, and
whether damaged files are skipped. An entry is built in a temporary folder and then renamed. So two processes can build
the same entry at the same time, and neither sees an incomplete one. A damaged entry is built again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from platformdirs import user_cache_path

from engram.persistence.files import write_json
from engram.streams.dataset import Array, DataError, Dataset

FORMAT = 3
"""Version of the cache. It is increased whenever decoding changes."""
PIXELS, FACTS = "pixels.raw", "facts.json"
"""Files of a cache entry: the pixels of all images, and a description of them."""
LOCK = "lock"
"""File that the builder of an entry holds locked. If it is not locked, the builder is dead."""
BUILDING = ".building-"
"""Prefix of the folders in which entries are built."""
DEAD_AFTER = 24 * 3600
"""Seconds without a change after which a folder of an unfinished entry that has no lock is removed."""
BLOCK = 1 << 24
"""Number of bytes that are read at a time for a checksum."""
SAY_AFTER, SAY_EVERY = 2.0, 10.0
"""Seconds of decoding before the first line about it, and between two lines."""

_log = logging.getLogger(__name__)
_should_stop: ContextVar[Callable[[], bool]] = ContextVar("_should_stop", default=lambda: False)


class ImageSource(Protocol):
    """Where images come from."""

    @property
    def place(self) -> Path:
        """Path that names the source."""

    def fingerprint(self) -> str:
        """Return a hash that changes whenever the images change."""

    def decoded(self, names: Sequence[str], size: int) -> Iterator[Array | DataError]:
        """Yield the pixels (3,size,size) of each of these images, or the error that it cannot be read with."""


class DecodingStopped(Exception):
    """Raised when the decoding of a data set was asked to stop."""


@contextmanager
def stop_decoding_on(should_stop: Callable[[], bool]) -> Iterator[None]:
    """Within this block, decoding raises `DecodingStopped` as soon as `should_stop` returns true."""
    token = _should_stop.set(should_stop)
    try:
        yield
    finally:
        _should_stop.reset(token)


def cache_folder() -> Path:
    """Return the folder in which decoded images are kept: $ENGRAM_CACHE, or the user's cache folder."""
    given = os.environ.get("ENGRAM_CACHE")
    return (Path(given) if given else user_cache_path("engram")) / "decoded"


def cached_pixels(
    name: str,
    source: ImageSource,
    names: list[str],
    key: Any,
    size: int,
    skip_damaged: bool,
    order: Callable[[list[int]], list[int]],
) -> tuple[Array, list[int]]:
    """Return the pixels of images, and the positions in `names` of the images that were decoded, in the same order.

    A warning is logged for each damaged image that is left out.

    Args:
        name: name of the data set.
        source: where the images come from.
        names: names of the images.
        key: what the order of the images depends on.
        size: pixels per side.
        skip_damaged: leave out images that cannot be read, instead of stopping.
        order: puts the positions of the decoded images into the order in which they are kept.
    """
    facts = json.dumps([FORMAT, source.fingerprint(), key, size, skip_damaged])
    folder = cache_folder()
    entry = folder / f"{name}-{size}px-{hashlib.sha256(facts.encode()).hexdigest()[:16]}"
    builder = _Builder(name, source, names, size, skip_damaged, order)
    found = _open_entry(entry, size, len(names)) if entry.exists() else None
    if found is None:
        if entry.exists():
            _log.warning("the decoded images in %s are damaged: they are made again", entry)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            building = Path(tempfile.mkdtemp(prefix=BUILDING, dir=folder))
            lock = _lock(building)
        except OSError as error:
            _log.warning("decoded images cannot be kept in %s (%s): set ENGRAM_CACHE to another folder", folder, error)
            return builder.in_memory()
        try:
            builder.write(building, entry)
            _move_into_place(building, entry, size, len(names))
        finally:
            lock.close()
            shutil.rmtree(building, ignore_errors=True)
        _forget_outdated(folder, builder.source_facts(), entry)
        found = _open_entry(entry, size, len(names))
        if found is None:
            raise DataError(f"{entry} was changed while it was made: run the same command again")
    pixels, kept, damaged = found
    for message in damaged:
        _log.warning("left out: %s", message)
    return pixels, kept


def pixels_intact(data: Dataset) -> bool:
    """Return whether the pixels of a data set are those that were decoded; if not, they are removed from the cache.

    Data sets that are not in the cache are always intact.
    """
    file = getattr(data.train_x, "filename", None)
    entry = Path(file).parent if file is not None else None
    if entry is None or entry.parent != cache_folder().resolve():
        return True
    with suppress(OSError, ValueError, KeyError, TypeError):
        if json.loads((entry / FACTS).read_text())["sha256"] == _sha256(entry / PIXELS):
            return True
    _log.warning("the decoded images in %s are damaged: they are made again", entry)
    _remove(entry)
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
            with suppress(OSError, ValueError, KeyError, TypeError):
                source = str(json.loads((path / FACTS).read_text())["source"])
            found.append(CacheEntry(path, sum(file.stat().st_size for file in path.iterdir()), source))
    return found


def clear_cache() -> int:
    """Remove the decoded images of all data sets, except entries that are being made, and return their bytes."""
    freed = 0
    for entry in cache_entries():
        if not entry.path.name.startswith(BUILDING) or _abandoned(entry.path, 0):
            _remove(entry.path)
            freed += entry.bytes
    return freed


class _Builder:
    """Decodes the images of a source and writes them as a cache entry."""

    def __init__(
        self,
        name: str,
        source: ImageSource,
        names: list[str],
        size: int,
        skip_damaged: bool,
        order: Callable[[list[int]], list[int]],
    ) -> None:
        self.name, self.source, self.names, self.size = name, source, names, size
        self.skip_damaged, self.order = skip_damaged, order
        self.kept: list[int] = []
        self.damaged: list[str] = []

    def source_facts(self) -> dict[str, Any]:
        """Return what tells entries of other sources and sizes apart."""
        return {"source": str(self.source.place.resolve()), "size": self.size, "skip_damaged": self.skip_damaged}

    def images(self, target: str) -> Iterator[Array]:
        """Yield the decoded images. A damaged one raises a DataError, or is left out and listed in `damaged`."""
        began = time.monotonic()
        say_at = began + SAY_AFTER
        for index, image in enumerate(self.source.decoded(self.names, self.size)):
            if _should_stop.get()():
                raise DecodingStopped
            if time.monotonic() > say_at:
                left = (time.monotonic() - began) / (index + 1) * (len(self.names) - index)
                where = f" into {target}" if say_at == began + SAY_AFTER else ""
                _log.warning(
                    "decoding %s, only this time%s: %s of %s images, about %.0f s left",
                    self.name,
                    where,
                    f"{index:,}",
                    f"{len(self.names):,}",
                    left,
                )
                say_at = time.monotonic() + SAY_EVERY
            if not isinstance(image, DataError):
                self.kept.append(index)
                yield image
            elif self.skip_damaged:
                self.damaged.append(str(image))
            else:
                raise image

    def in_memory(self) -> tuple[Array, list[int]]:
        """Return the pixels and positions of the images without using the cache."""
        images = [np.empty((0, 3, self.size, self.size), np.uint8), *(image[None] for image in self.images("memory"))]
        position = {index: place for place, index in enumerate(self.kept)}
        kept = self.order(self.kept)
        for message in self.damaged:
            _log.warning("left out: %s", message)
        return np.concatenate(images)[[position[index] for index in kept]], kept

    def write(self, folder: Path, entry: Path) -> None:
        """Write the files of a cache entry into `folder`; `entry` is named in messages."""
        try:
            with (folder / PIXELS).open("wb") as file:
                for image in self.images(f"{entry} ({len(self.names) * 3 * self.size**2 / 1e6:,.0f} MB)"):
                    file.write(image.tobytes())
            kept = self.order(self.kept)
            if kept != self.kept:
                self._reorder(folder / PIXELS, kept)
            with (folder / PIXELS).open("rb+") as file:
                os.fsync(file.fileno())
            facts = {"kept": kept, "damaged": self.damaged, "sha256": _sha256(folder / PIXELS)}
            write_json(folder / FACTS, self.source_facts() | facts)
        except OSError as error:
            raise DataError(
                f"decoded images cannot be written to {folder.parent} ({error}): free some space there"
            ) from error

    def _reorder(self, path: Path, kept: list[int]) -> None:
        """Rewrite the pixels in the order of `kept`: damaged images have shifted which images are for testing."""
        position = {index: place for place, index in enumerate(self.kept)}
        images = np.memmap(path, np.uint8, "r", shape=(len(kept), 3, self.size, self.size))
        with path.with_suffix(".new").open("wb") as file:
            for index in kept:
                file.write(images[position[index]].tobytes())
        os.replace(path.with_suffix(".new"), path)


def _open_entry(entry: Path, size: int, count: int) -> tuple[Array, list[int], list[str]] | None:
    """Return pixels, positions and messages about damaged images of an entry; None if it is not whole."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads((entry / FACTS).read_text())
        kept, damaged = found["kept"], found["damaged"]
        shape = (len(kept), 3, size, size)
        right = sorted(kept) == sorted(set(kept) & set(range(count))) and all(type(each) is str for each in damaged)
        if right and (entry / PIXELS).stat().st_size == len(kept) * 3 * size * size:
            pixels = np.memmap(entry / PIXELS, np.uint8, "r", shape=shape) if kept else np.empty(shape, np.uint8)
            return pixels, kept, damaged
    return None


def _lock(building: Path) -> IO[bytes]:
    """Lock a folder in which an entry is built until the returned file is closed, if the file system can."""
    file = (building / f"{LOCK}.new").open("wb")
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX)
        (building / f"{LOCK}.new").rename(building / LOCK)
    return file


def _abandoned(building: Path, after: float) -> bool:
    """Return whether the process that built an entry here is dead; without a lock, after so many seconds."""
    try:
        with (building / LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except BlockingIOError:
        return False
    except OSError:
        return time.time() - building.stat().st_mtime > after


def _move_into_place(building: Path, entry: Path, size: int, count: int) -> None:
    """Rename a finished entry. If another process was faster, its entry is kept; a damaged one is removed."""
    for name in (LOCK, f"{LOCK}.new"):
        (building / name).unlink(missing_ok=True)
    for _ in range(2):
        try:
            building.rename(entry)
        except OSError as error:
            if _open_entry(entry, size, count) is not None:
                return
            if not entry.exists():
                raise DataError(f"{entry} cannot be made ({error}): set ENGRAM_CACHE to another folder") from error
            _remove(entry)
        else:
            return


def _remove(entry: Path) -> None:
    (entry / FACTS).unlink(missing_ok=True)
    shutil.rmtree(entry, ignore_errors=True)


def _forget_outdated(folder: Path, source: dict[str, Any], entry: Path) -> None:
    """Remove entries of the same source from before its files changed, and unfinished entries of dead processes."""
    for other in list(folder.iterdir()):
        with suppress(OSError, ValueError, AttributeError):
            if other.name.startswith(BUILDING):
                outdated = _abandoned(other, DEAD_AFTER)
            else:
                outdated = other != entry and json.loads((other / FACTS).read_text()).items() >= source.items()
            if outdated:
                _remove(other)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
