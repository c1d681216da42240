"""Folders that are built under another name and then renamed, so that nobody sees a part of them; builders hold a lock.

A builder that was killed leaves its folder behind. It is told from one at work by its lock.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import IO

from engram.persistence.files import NotAPlainFileError, open_plain
from engram.persistence.lock import LOCK, lock_file

DEAD_AFTER = 24 * 3600
"""Seconds without a change after which a folder that has no lock counts as left behind."""


def lock_folder(building: Path) -> IO[bytes]:
    """Lock a folder in which something is built until the returned file is closed, if the file system can.

    If it cannot, the file is closed at once: some systems refuse to remove or move what is open.
    """
    file = (building / f"{LOCK}.new").open("wb")
    try:
        lock_file(file.fileno(), longest_wait=None)
        (building / f"{LOCK}.new").rename(building / LOCK)
    except OSError:
        file.close()
    return file


def remove_lock(building: Path) -> None:
    """Remove the lock from a folder that is finished."""
    for name in (LOCK, f"{LOCK}.new"):
        (building / name).unlink(missing_ok=True)


def is_abandoned(building: Path, after: float = DEAD_AFTER) -> bool:
    """Return whether the process that built here is dead; without a lock, after so many seconds."""
    try:
        with open(open_plain(building / LOCK, os.O_RDONLY), "rb") as file:
            lock_file(file.fileno(), longest_wait=0.0)
            return True
    except BlockingIOError:
        return False
    except (OSError, NotAPlainFileError):
        return time.time() - building.stat().st_mtime > after


def remove_abandoned(folder: Path, prefix: str) -> None:
    """Remove the folders in `folder` whose names begin so and whose builders are dead."""
    for path in list(folder.iterdir()):
        if path.name.startswith(prefix) and path.is_dir() and not path.is_symlink() and is_abandoned(path):
            shutil.rmtree(path, ignore_errors=True)
