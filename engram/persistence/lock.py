"""A lock that lets only one process work in a folder. It is released when the process ends, even by a crash."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engram.base.errors import InputError
from engram.persistence.files import open_plain

try:
    import fcntl
except ImportError:  # not a POSIX system: folders are not locked
    fcntl = None  # type: ignore[assignment]


LOCK = "lock"
"""Name of the lock file in a folder."""
LONGEST_WAIT = 60.0
"""Seconds after which a process that saves is taken for stuck."""
LOOK_EVERY = 0.005
"""Seconds between two tries to lock a folder that another process holds."""
_TAKEN = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}

_log = logging.getLogger(__name__)


class BusyError(InputError):
    """Raised when another process works in the folder."""


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, or raise a `BusyError` if another process holds it."""
    with _locked(folder, longest_wait=0.0):
        yield


def require_unlocked(folder: Path) -> None:
    """Raise a `BusyError` if another process works in the folder; to be called before long preparations."""
    if folder.is_dir():
        with exclusive_lock(folder):
            pass


@contextmanager
def waiting_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; wait for it if another process holds it."""
    with _locked(folder, longest_wait=None):
        yield


@contextmanager
def saving_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder while saving into it; wait for others that save, but not for ever.

    Where the file system has no locks, saving goes on without one: several processes must then not share the folder.
    """
    with _locked(folder, longest_wait=LONGEST_WAIT, needed=False):
        yield


@contextmanager
def _locked(folder: Path, longest_wait: float | None, needed: bool = True) -> Iterator[None]:
    with open(open_plain(folder / LOCK, os.O_RDWR | os.O_CREAT), "r+b") as file:
        try:
            if fcntl is not None:
                lock_file(file.fileno(), longest_wait)
        except BlockingIOError:
            raise BusyError(f"another process runs in {folder}: wait until it ends, or use another folder") from None
        except OSError as error:
            if needed:
                raise InputError(
                    f"{folder} cannot be locked ({error}): use a file system that supports flock"
                ) from error
            _log.warning("%s cannot be locked (%s): save there from one process only", folder, error)
        yield


def lock_file(descriptor: int, longest_wait: float | None) -> None:
    """Lock an open file. After the longest wait (none is for ever) a BlockingIOError is raised.

    Where the system has no such locks, an OSError says so.
    """
    if fcntl is None:
        raise OSError(errno.ENOTSUP, "this system has no flock")
    if longest_wait is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return None
    deadline = time.monotonic() + longest_wait
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            if time.monotonic() >= deadline:
                raise BlockingIOError(error.errno, "it is locked") from error
        time.sleep(LOOK_EVERY)
