"""Read the files of a data set from a folder, a zip or a tar archive, without unpacking anything to disk.

Hidden files and what operating systems add to folders and archives are ignored. Refused are archives with file names
that point outside, files larger than the limits, archives that unpack to far more than their own size, and members
that unpack to another size than the archive states.
"""

from __future__ import annotations

import copy
import gzip
import hashlib
import io
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, Self

from engram.streams.dataset import DataError

MOST_FILES = 2_000_000
"""Largest number of files in a data set."""
MOST_BYTES = 32 << 30
"""Largest number of bytes of all files together."""
LARGEST_FILE = 256 << 20
"""Largest number of bytes of one file that is read whole."""
LARGEST_TEXT = 8 << 20
"""Largest number of bytes of a text file."""
UNSUSPICIOUS = 256 << 20
"""Archives may unpack to this number of bytes, however small they are."""
MOST_UNPACKED = 50
"""Larger archives may unpack to at most this many times their own size."""
BLOCK = 1 << 20
"""Number of bytes that are read at a time. Headers inside archives cannot be larger."""
LEAST_PACKED = 100
"""An archive with many files has at least this number of bytes for each; an image takes more."""
MANY_FILES = 10_000
"""Archives with fewer files are read however small they are."""
DEEPEST = 64
"""Largest number of folders above a file."""
SYSTEM_NAMES = {"__MACOSX", "Thumbs.db", "desktop.ini", "@eaDir", "lost+found", "$RECYCLE.BIN", "__pycache__"}
"""Files and folders that operating systems and tools add."""


class FileTree:
    """The files of a data set. Names are relative to it, such as "train/n01443537/images/n01443537_0.JPEG".

    Args:
        place: path of the folder or archive.
        sizes: number of bytes of each file, by its full name.
        ignored: names of hidden files, system files and their folders that were already passed over.
    """

    def __init__(self, place: Path, sizes: dict[str, int], ignored: Iterable[str] = ()) -> None:
        self.place = place
        self.prefix = ""
        self.ignored = sorted([*ignored, *filter(_is_ignored, sizes)])
        self.sizes = {name: size for name, size in sizes.items() if not _is_ignored(name)}
        if len(self.sizes) > MOST_FILES or sum(self.sizes.values()) > MOST_BYTES:
            raise DataError(
                f"{place} has more than {MOST_FILES:,} files or {MOST_BYTES >> 30} GiB: this is not a data set"
            )
        if any(name.count("/") > DEEPEST for name in self.sizes):
            raise DataError(f"{place} has files below more than {DEEPEST} folders: this is not a data set")

    def __contains__(self, name: str) -> bool:
        return name in self.sizes

    def names(self, folder: str = "") -> list[str]:
        """Return the sorted names of the files that begin with `folder`, such as "train/"; by default of all files."""
        return sorted(name for name in self.sizes if name.startswith(folder))

    def find(self, file: str) -> str | None:
        """Return the name of the file called `file` that has the fewest folders above it, or None."""
        found = [name for name in self.sizes if name.rpartition("/")[2] == file]
        return min(found, key=lambda name: (name.count("/"), name), default=None)

    def below(self, prefix: str) -> Self:
        """Return the files whose names begin with `prefix`, as a data set of their own with names without it."""
        tree = copy.copy(self)
        tree.prefix = self.prefix + prefix
        tree.sizes = {name[len(prefix) :]: size for name, size in self.sizes.items() if name.startswith(prefix)}
        return tree

    def read(self, name: str, limit: int = LARGEST_FILE) -> bytes:
        """Return the content of a file. A file of more than `limit` bytes is refused."""
        return self.read_all([name], limit)[name]

    def read_lines(self, name: str) -> list[str]:
        """Return the lines of a text file, without the mark that some programs put at its beginning."""
        try:
            return self.read(name, LARGEST_TEXT).decode("utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise DataError(f"{self.place}: {name} is not a text file ({error.reason}): obtain it again") from error

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
                content = _up_to(file, self.sizes[name] + 1)
                if len(content) != self.sizes[name]:
                    raise DataError(
                        f"{self.place}: {name} does not have its stated {self.sizes[name]:,} bytes: obtain it again"
                    )
                contents[name] = content
        return contents

    def heads(self, names: list[str], count: int) -> dict[str, bytes]:
        """Return the first `count` bytes of several files by name."""
        with self._explained():
            return {name: _up_to(file, count) for name, file in self._open(names)}

    def fingerprint(self) -> str:
        """Return a hash that changes whenever a file is added, removed or changed."""
        facts = "\n".join(f"{name}\t{self._version(name)}" for name in sorted(self.sizes))
        return hashlib.sha256(facts.encode("utf-8", "surrogateescape")).hexdigest()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors while reading into a DataError that names the folder or archive."""
        try:
            yield
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, zlib.error, RuntimeError) as error:
            raise DataError(f"{self.place} is damaged or cut off ({error}): obtain it again") from error

    def _open(self, names: list[str]) -> Iterator[tuple[str, IO[bytes]]]:
        """Yield each of these files opened, with its name, in any order."""
        raise NotImplementedError

    def _version(self, name: str) -> str:
        """Return a text that changes when the file changes."""
        raise NotImplementedError


class _Folder(FileTree):
    def __init__(self, place: Path) -> None:
        ignored: list[str] = []
        files = {path.relative_to(place).as_posix(): path.stat() for path in _walk(place, ignored) if path.is_file()}
        self.changed = {name: stat.st_mtime_ns for name, stat in files.items()}
        super().__init__(place, {name: stat.st_size for name, stat in files.items()}, ignored)

    def _open(self, names: list[str]) -> Iterator[tuple[str, IO[bytes]]]:
        for name in names:
            with (self.place / (self.prefix + name)).open("rb") as file:
                yield name, file

    def _version(self, name: str) -> str:
        return f"{self.sizes[name]} {self.changed[self.prefix + name]}"


class _Zip(FileTree):
    def __init__(self, place: Path) -> None:
        self.place = place
        with self._explained():
            self.archive = zipfile.ZipFile(place)
        members = {member.filename: member for member in self.archive.infolist() if not member.is_dir()}
        _require_contents(place, len(members))
        for name, member in members.items():
            _require_inside(name, place)
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise DataError(f"{place} is compressed in an unusual way: unpack it and give the folder")
        _require_unsuspicious(place, sum(member.file_size for member in members.values()))
        super().__init__(place, {name: member.file_size for name, member in members.items()})
        self.checksums = {name: member.CRC for name, member in members.items()}

    def _open(self, names: list[str]) -> Iterator[tuple[str, IO[bytes]]]:
        for name in names:
            with self.archive.open(self.prefix + name) as file:
                yield name, file

    def _version(self, name: str) -> str:
        return f"{self.sizes[name]} {self.checksums[self.prefix + name]}"


class _Tar(FileTree):
    def __init__(self, place: Path) -> None:
        self.place = place
        sizes: dict[str, int] = {}
        count = 0
        with self._explained(), self._archive() as archive:
            for member in archive:
                if member.isfile():
                    _require_inside(member.name, place)
                    sizes[member.name] = member.size
                archive.members.clear()  # type: ignore[attr-defined]  # tarfile would keep them all
                count += 1
                _require_contents(place, count)
        super().__init__(place, sizes)
        self.changed = place.stat().st_mtime_ns

    @contextmanager
    def _archive(self) -> Iterator[tarfile.TarFile]:
        """Open the archive, plain or with gzip, so that it cannot unpack to too much."""
        with self.place.open("rb") as packed, gzip.open(packed) as unpacked:
            bounded: Any = _Bounded(packed if self.place.suffix.lower() == ".tar" else unpacked, self.place)
            with tarfile.open(fileobj=bounded, mode="r:") as archive:
                yield archive

    def _open(self, names: list[str]) -> Iterator[tuple[str, IO[bytes]]]:
        wanted = {self.prefix + name: name for name in names}
        with self._archive() as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() and member.name in wanted else None
                if file is not None:
                    yield wanted[member.name], file

    def _version(self, name: str) -> str:
        return f"{self.sizes[name]} {self.changed}"


class _Bounded:
    """A file that is read in blocks of at most `BLOCK` bytes, and only as far as `_require_unsuspicious` allows."""

    def __init__(self, file: Any, place: Path) -> None:
        self.file, self.place = file, place
        self.tell = file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= BLOCK:
            raise DataError(f"{self.place} has a header of {size:,} bytes: this is not a data set")
        _require_unsuspicious(self.place, self.file.tell() + size)
        content: bytes = self.file.read(size)
        return content

    def seek(self, position: int) -> int:
        _require_unsuspicious(self.place, position)
        return int(self.file.seek(position))


def open_files(place: Path) -> FileTree:
    """Return the files of a folder, or of a zip or tar archive."""
    if place.is_dir():
        return _Folder(place)
    return _Zip(place) if place.suffix.lower() == ".zip" else _Tar(place)


def _up_to(file: IO[bytes], count: int) -> bytes:
    """Return the first `count` bytes of a file, or all if it has fewer."""
    content = io.BytesIO()
    while content.tell() < count and (block := file.read(min(BLOCK, count - content.tell()))):
        content.write(block)
    return content.getvalue()


def _is_ignored(name: str) -> bool:
    return any(part.startswith(".") or part in SYSTEM_NAMES for part in name.split("/") if part != ".")


def _walk(folder: Path, ignored: list[str]) -> Iterator[Path]:
    """Yield every file below a folder, and add the ignored folders to `ignored`.

    Links to folders are followed, except links back to a folder above them. A folder that is there twice is refused.
    """
    seen: dict[Path, str] = {}
    count = 0
    for path, folders, names in os.walk(folder, followlinks=True):
        here = Path(path).resolve()
        if here in seen:
            raise DataError(f"{seen[here]} and {path} are one folder, because of a link: remove the link")
        seen[here] = path
        ignored += [f"{(Path(path) / name).relative_to(folder).as_posix()}/" for name in folders if _is_ignored(name)]
        folders[:] = sorted(
            name for name in folders if not _is_ignored(name) and not here.is_relative_to((Path(path) / name).resolve())
        )
        count += len(names)
        if count > MOST_FILES or Path(path).relative_to(folder).as_posix().count("/") > DEEPEST:
            raise DataError(
                f"{folder} has more than {MOST_FILES:,} files, or files below more than {DEEPEST} folders: this is not "
                "a data set"
            )
        yield from (Path(path) / name for name in names)


def _require_inside(name: str, place: Path) -> None:
    """Refuse a name that points outside the archive."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name:
        raise DataError(f"{place} has a file named {name!r}, which points outside the archive: do not trust it")


def _require_contents(place: Path, files: int) -> None:
    """Refuse an archive of very many files with next to nothing in them: listing them would take long."""
    packed = place.stat().st_size
    if files > max(MANY_FILES, min(MOST_FILES, packed // LEAST_PACKED)):
        raise DataError(f"{place} has at least {files:,} files in {packed:,} bytes: this is not a data set")


def _require_unsuspicious(place: Path, unpacked: int) -> None:
    """Refuse an archive that unpacks to far more than its own size, as only archives made to do harm do."""
    if unpacked > UNSUSPICIOUS and unpacked > MOST_UNPACKED * place.stat().st_size:
        raise DataError(
            f"{place} unpacks to more than {MOST_UNPACKED} times its size, as no data set does: do not trust it"
        )
