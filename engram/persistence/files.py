"""Files that a crash leaves whole: the old content, or the new one. No link is followed to write, and none to read."""

from __future__ import annotations

import json
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from engram.base.errors import InputError

PARTIAL = ".partial"
"""End of the name of a file or folder that is not whole yet."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
"""Opening a pipe does not wait for its other end."""


class NotAPlainFileError(InputError):
    """A link, a pipe, a device or a folder is where a file is expected, or the file is too large."""


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old or the new content, never a part."""
    temporary = partial_path(path)
    try:
        write_synced(temporary, content)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, by `replace_file`."""
    replace_file(path, (json.dumps(value, indent=1) + "\n").encode())


def partial_path(path: Path) -> Path:
    """Return a path beside `path` that nobody can foresee, for what is written before it gets its name."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}{PARTIAL}")


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file and wait until it is on disk. Whatever has that name already is refused, a link too."""
    descriptor = os.open(path, _NEW, 0o666)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append_line(path: Path, line: str) -> None:
    """Add a line to a file, and begin a new one before it if a crash cut off the last."""
    descriptor = open_plain(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    with open(descriptor, "r+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        torn = file.read(1) not in (b"", b"\n")
        file.write((b"\n" if torn else b"") + line.encode() + b"\n")


def read_plain(path: Path, limit: int, *, follow: bool = False) -> bytes:
    """Return the content of a plain file of at most `limit` bytes, or raise a `NotAPlainFileError`.

    Args:
        path: the file.
        limit: largest number of bytes it may have.
        follow: follow a link; for paths that the user has named, but not for names found in a folder.
    """
    with open(open_plain(path, os.O_RDONLY, follow=follow), "rb") as file:
        size = require_size(file.fileno(), path, limit)
        return file.read(size)


def open_plain(path: Path, flags: int, *, follow: bool = False) -> int:
    """Open a plain file and return its descriptor. Links (unless followed), pipes and devices are refused at once."""
    try:
        descriptor = os.open(path, flags | _NO_WAIT | (0 if follow else getattr(os, "O_NOFOLLOW", 0)), 0o666)
    except OSError as error:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise NotAPlainFileError(f"{path} is a link or a special file: a plain file is expected there") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotAPlainFileError(f"{path} is no plain file: remove it, or use another folder")
    return descriptor


def require_size(descriptor: int, path: Path, limit: int) -> int:
    """Return the size of an open file, or raise a `NotAPlainFileError` if it is larger than `limit`."""
    size = os.fstat(descriptor).st_size
    if size > limit:
        raise NotAPlainFileError(f"{path} has {size:,} bytes, more than {limit:,}: it is not read")
    return size


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, and wait until they are on disk."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        sync_folder(each.parent)
    folder.mkdir(exist_ok=True)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk, where the system can open a folder (Windows cannot)."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
