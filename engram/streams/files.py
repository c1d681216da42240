"""Read the files of a data set from a folder, a zip or a tar archive, without unpacking anything to disk.

Refused are archives with file names that point outside, files larger than the limits, and members that unpack to
another size than the archive states.
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
"""Largest number of files in a data set."""
MOST_BYTES = 32 << 30
"""Largest number of bytes of all files together."""
LARGEST_FILE = 2 << 30
"""Largest number of bytes of one file."""


class FileTree:
    """The files of a data set. Names are relative to it, such as "train/n01443537/images/n01443537_0.JPEG".

    Args:
        place: path of the folder or archive.
        sizes: number of bytes of each file, by its full name.
        prefix: only files whose names begin with it belong to the data set; names are then given without it.
    """

    def __init__(self, place: Path, sizes: dict[str, int], prefix: str) -> None:
        self.place = place
        self.prefix = prefix
        self.sizes = _below(prefix, sizes, place)
        if len(self.sizes) > MOST_FILES or sum(self.sizes.values()) > MOST_BYTES:
            raise DataError(
                f"{place} has more than {MOST_FILES:,} files or {MOST_BYTES >> 30} GiB: this is not a data set"
            )

    def __contains__(self, name: str) -> bool:
        return name in self.sizes

    def names(self, folder: str = "") -> list[str]:
        """Return the sorted names of the files that begin with `folder`, such as "train/"; by default of all files."""
        return sorted(name for name in self.sizes if name.startswith(folder))

    def read(self, name: str, limit: int = LARGEST_FILE) -> bytes:
        """Return the content of a file. A file of more than `limit` bytes is refused."""
        return self.read_all([name], limit)[name]

    def read_all(self, names: Iterable[str], limit: int = LARGEST_FILE) -> dict[str, bytes]:
        """Return the contents of several files by name, in one pass over the archive; otherwise like `read`."""
        wanted = list(names)
        for name in wanted:
            if name not in self.sizes:
                raise DataError(f"{self.place} lacks the file {name}: obtain it again")
            if self.sizes[name] > limit:
                raise DataError(
                    f"{self.place}: {name} has {self.sizes[name]:,} bytes, more than {limit:,}: it is refused"
                )
        contents: dict[str, bytes] = {}
        with self._explained():
            for name, file in self._open(wanted):
                content = file.read(self.sizes[name] + 1)
                if len(content) != self.sizes[name]:
                    raise DataError(
                        f"{self.place}: {name} does not have its stated {self.sizes[name]:,} bytes: obtain it again"
                    )
                contents[name] = content
        return contents

    def fingerprint(self) -> str:
        """Return a hash that changes whenever a file is added, removed or changed."""
        facts = "\n".join(f"{name}\t{self._version(name)}" for name in sorted(self.sizes))
        return hashlib.sha256(facts.encode()).hexdigest()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors while reading into a DataError that names the folder or archive."""
        try:
            yield
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, zlib.error) as error:
            raise DataError(f"{self.place} is damaged or cut off ({error}): obtain it again") from error

    def _open(self, names: list[str]) -> Iterator[tuple[str, IO[bytes]]]:
        """Yield each of these files opened, with its name, in any order."""
        raise NotImplementedError

    def _version(self, name: str) -> str:
        """Return a text that changes when the file changes."""
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
                    raise DataError(f"{place} has more than {MOST_FILES:,} files: this is not a data set")
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
    """Return the files of a folder or an archive.

    Args:
        place: path of a folder, or of a zip or tar archive.
        prefix: only take files whose names in the archive begin with it; ignored for a folder.
        only: names of the files to take from a folder; all if not given. Ignored for an archive.
    """
    if place.is_dir():
        return _Folder(place, only)
    return _Zip(place, prefix) if place.suffix == ".zip" else _Tar(place, prefix)


def _walk(folder: Path) -> Iterator[Path]:
    """Yield every file below a folder. Links to folders are followed, except links back to a folder above them."""
    for path, folders, names in os.walk(folder, followlinks=True):
        here = Path(path).resolve()
        folders[:] = [name for name in folders if not here.is_relative_to((Path(path) / name).resolve())]
        yield from (Path(path) / name for name in names)


def first_existing(root: Path, folders: Iterable[str], archives: Iterable[str]) -> Path | None:
    """Return the first of these folders or archives that exists in `root`, or None.

    Args:
        root: folder to look in.
        folders: names of folders, which are tried first.
        archives: patterns of file names.
    """
    for folder in folders:
        if (root / folder).is_dir():
            return root / folder
    for pattern in archives:
        for path in sorted(root.glob(pattern)):
            return path
    return None


def _below(prefix: str, sizes: dict[str, int], place: Path) -> dict[str, int]:
    """Return the sizes of the files below `prefix`, by name without it. Names that point outside are refused."""
    for name in sizes:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name:
            raise DataError(f"{place} has a file named {name!r}, which points outside the archive: do not trust it")
    return {name[len(prefix) :]: size for name, size in sizes.items() if name.startswith(prefix)}
