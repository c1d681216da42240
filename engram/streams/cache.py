"""A cache of decoded images. Images are decoded once; later runs map the pixels into memory and start in seconds.

The name of a cache entry is a hash of everything that its pixels depend on: the current files, the image size, and
whether damaged files are skipped. A damaged entry is built again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from engram.base.escaping import for_terminal
from engram.persistence.building import lock_folder
from engram.persistence.files import write_json
from engram.streams.cache_entry import (
    BUILDING,
    FACTS,
    PIXELS,
    cache_folder,
    checksum,
    forget_outdated,
    move_into_place,
    open_entry,
)
from engram.streams.dataset import Array, DataError

FORMAT = 4
"""Version of the cache. It is increased whenever decoding changes."""
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
    found = open_entry(entry, size, len(names)) if entry.exists() else None
    if found is None:
        if entry.exists():
            _log.warning("the decoded images in %s are damaged: they are made again", entry)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            building = Path(tempfile.mkdtemp(prefix=BUILDING, dir=folder))
            lock = lock_folder(building)
        except OSError as error:
            _log.warning("decoded images cannot be kept in %s (%s): set ENGRAM_CACHE to another folder", folder, error)
            return builder.in_memory()
        try:
            builder.write(building, entry)
            move_into_place(building, entry, size, len(names))
        finally:
            lock.close()
            shutil.rmtree(building, ignore_errors=True)
        forget_outdated(folder, builder.source_facts(), entry)
        found = open_entry(entry, size, len(names))
        if found is None:
            raise DataError(f"{entry} was changed while it was made: run the same command again")
    pixels, kept, damaged = found
    for message in damaged:
        _log.warning("left out: %s", for_terminal(message))
    return pixels, kept


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
            _log.warning("left out: %s", for_terminal(message))
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
            facts = {"kept": kept, "damaged": self.damaged, "sha256": checksum(folder / PIXELS)}
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
