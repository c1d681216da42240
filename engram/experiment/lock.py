"""One process a run folder: a lock that ends with the process, however it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engram.errors import InputError

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing to lock with
    fcntl = None  # type: ignore[assignment]


LOCK = "lock"


class BusyError(InputError):
    """Another process works in the folder."""


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """While inside, another process that wants the same folder is refused."""
    with _locked(folder, wait=False):
        yield


def require_free(folder: Path) -> None:
    """Refuse a folder another process works in, before anything costly is done for it."""
    if folder.is_dir():
        with only_one(folder):
            pass


@contextmanager
def in_turn(folder: Path) -> Iterator[None]:
    """While inside, another process that wants the same folder waits."""
    with _locked(folder, wait=True):
        yield


@contextmanager
def _locked(folder: Path, wait: bool) -> Iterator[None]:
    with (folder / LOCK).open("a") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                raise BusyError(f"another process runs in {folder}: wait for it, or use another folder") from None
            except OSError as error:
                raise InputError(f"{folder} cannot be locked ({error}): use a file system that knows flock") from error
        yield
