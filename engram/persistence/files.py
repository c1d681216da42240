"""Files that a crash leaves whole: the old content, or the new one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old or the new content, never a part."""
    temporary = path.with_name(path.name + ".partial")
    write_synced(temporary, content)
    os.replace(temporary, path)
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, by `replace_file`."""
    replace_file(path, (json.dumps(value, indent=1) + "\n").encode())


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and wait until it is on disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, and wait until they are on disk."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        sync_folder(each.parent)
    folder.mkdir(exist_ok=True)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
