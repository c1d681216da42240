"""A lock that lets only one process work in a run folder. It is released when the process ends, even by a crash."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engram.base.errors import InputError

try:
    import fcntl
except ImportError:  # not a POSIX system: folders are not locked
    fcntl = None  # type: ignore[assignment]


LOCK = "lock"
"""Name of the lock file in a run folder."""


class BusyError(InputError):
    """Raised when another process works in the folder."""


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, or raise a `BusyError` if another process holds it."""
    with _locked(folder, wait=False):
        yield


def require_unlocked(folder: Path) -> None:
    """Raise a `BusyError` if another process works in the folder; to be called before long preparations."""
    if folder.is_dir():
        with exclusive_lock(folder):
            pass


@contextmanager
def waiting_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; wait for it if another process holds it."""
    with _locked(folder, wait=True):
        yield


@contextmanager
def _locked(folder: Path, wait: bool) -> Iterator[None]:
    with (folder / LOCK).open("a") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                raise BusyError(
                    f"another process runs in {folder}: wait until it ends, or use another folder"
                ) from None
            except OSError as error:
                raise InputError(
                    f"{folder} cannot be locked ({error}): use a file system that supports flock"
                ) from error
        yield
