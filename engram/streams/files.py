"""Files by name, from a folder, a zip or a tar: data sets are read where they are, nothing is unpacked to disk.

Names that leave the archive, files beyond the limits, and members that unpack to more than they said are refused.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from engram.streams.dataset import DataError

MOST_FILES = 2_000_000
MOST_BYTES = 32 << 30
"""Of all files together."""
LARGEST_FILE = 2 << 30


class FileTree:
    """The files of a data set, by their names inside it ("train/n01443537/images/n01443537_0.JPEG")."""

    def __init__(self, place: Path, sizes: dict[str, int], prefix: str) -> None:
        self.place = place
        self.prefix = prefix
        self.sizes = _below(prefix, sizes, place)
        if len(self.sizes) > MOST_FILES or sum(self.sizes.values()) > MOST_BYTES:
            raise DataError(f"{place} holds more than {MOST_FILES:,} files or {MOST_BYTES >> 30} GiB: not a data set")

    def __contains__(self, name: str) -> bool:
        return name in self.sizes

    def names(self, folder: str = "") -> list[str]:
        """The files below a folder, sorted."""
        return sorted(name for name in self.sizes if name.startswith(folder))

    def read(self, name: str, limit: int = LARGEST_FILE) -> bytes:
        """The content of a file of at most `limit` bytes."""
        return self.read_all([name], limit)[name]

    def read_all(self, names: Iterable[str], limit: int = LARGEST_FILE) -> dict[str, bytes]:
        """The contents of several files, in one pass over the archive."""
        wanted = list(names)
        for name in wanted:
            if name not in self.sizes:
                raise DataError(f"{self.place} lacks {name}: obtain it again")
            if self.sizes[name] > limit:
                raise DataError(f"{self.place}: {name} has {self.sizes[name]:,} bytes, more than {limit:,}")
        contents: dict[str, bytes] = {}
        with self._explained():
            for name, file in self._open(wanted):
                content = file.read(self.sizes[name] + 1)
                if len(content) != self.sizes[name]:
                    raise DataError(f"{self.place}: {name} does not have the {self.sizes[name]:,} bytes it says")
                contents[name] = content
        return contents

    def fingerprint(self) -> str:
        """Another one whenever a file is added, removed or changed."""
        facts = "\n".join(f"{name}\t{self._version(name)}" for name in sorted(self.sizes))
        return hashlib.sha256(facts.encode()).hexdigest()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, zlib.error) as error:
            raise DataError(f"{self.place} is damaged or cut off ({error}): obtain it again") from error

    def _open(self, names: list[str]) -> Iterator[tuple[str, IO[bytes]]]:
        raise NotImplementedError

    def _version(self, name: str) -> str:
        raise NotImplementedError


class _Folder(FileTree):
    def __init__(self, place: Path, only: Iterable[str] | None) -> None:
        paths = _walk(place) if only is None else (place / name for name in only)
        files = {path.relative_to(place).as_posix(): path.stat() for path in paths if path.is_file()}
        self.changed = {name: stat.st_mtime_ns for name, stat in files.items()}
        super().__init__(place, {name: stat.st_size for name, stat in files.items()}, "")

    def _open(self, names: list[str]) -> Iterator[tuple[str, IO[bytes]]]:
        for name in names:
            with (self.place / name).open("rb") as file:
                yield name, file

    def _version(self, name: str) -> str:
        return f"{self.sizes[name]} {self.changed[name]}"


class _Zip(FileTree):
    def __init__(self, place: Path, prefix: str) -> None:
        self.place = place
        with self._explained():
            self.archive = zipfile.ZipFile(place)
        members = {member.filename: member for member in self.archive.infolist() if not member.is_dir()}
        super().__init__(place, {name: member.file_size for name, member in members.items()}, prefix)
        self.checksums = {name: members[self.prefix + name].CRC for name in self.sizes}

    def _open(self, names: list[str]) -> Iterator[tuple[str, IO[bytes]]]:
        for name in names:
            with self.archive.open(self.prefix + name) as file:
                yield name, file

    def _version(self, name: str) -> str:
        return f"{self.sizes[name]} {self.checksums[name]}"


class _Tar(FileTree):
    def __init__(self, place: Path, prefix: str) -> None:
        self.place = place
        with self._explained(), tarfile.open(place) as archive:
            sizes: dict[str, int] = {}
            for member in archive:
                if member.isfile():
                    sizes[member.name] = member.size
                if len(sizes) > MOST_FILES:
                    raise DataError(f"{place} holds more than {MOST_FILES:,} files: not a data set")
        super().__init__(place, sizes, prefix)
        self.changed = place.stat().st_mtime_ns

    def _open(self, names: list[str]) -> Iterator[tuple[str, IO[bytes]]]:
        wanted = {self.prefix + name: name for name in names}
        with tarfile.open(self.place) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() and member.name in wanted else None
                if file is not None:
                    yield wanted[member.name], file

    def _version(self, name: str) -> str:
        return f"{self.sizes[name]} {self.changed}"


def open_files(place: Path, prefix: str = "", only: Iterable[str] | None = None) -> FileTree:
    """The files of a folder (or only those), or the files below `prefix` in an archive."""
    if place.is_dir():
        return _Folder(place, only)
    return _Zip(place, prefix) if place.suffix == ".zip" else _Tar(place, prefix)


def _walk(folder: Path) -> Iterator[Path]:
    """Every file below, links to folders followed, but none of them twice on one way down."""
    for path, folders, names in os.walk(folder, followlinks=True):
        here = Path(path).resolve()
        folders[:] = [name for name in folders if not here.is_relative_to((Path(path) / name).resolve())]
        yield from (Path(path) / name for name in names)


def first_existing(root: Path, folders: Iterable[str], archives: Iterable[str]) -> Path | None:
    """The first of these folders in `root`, or else the first file that matches one of these patterns."""
    for folder in folders:
        if (root / folder).is_dir():
            return root / folder
    for pattern in archives:
        for path in sorted(root.glob(pattern)):
            return path
    return None


def _below(prefix: str, sizes: dict[str, int], place: Path) -> dict[str, int]:
    for name in sizes:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name:
            raise DataError(f"{place} holds a file named {name!r}, which leaves the archive: do not trust it")
    return {name[len(prefix) :]: size for name, size in sizes.items() if name.startswith(prefix)}
