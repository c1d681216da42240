"""What our writer asks of the disk, recorded; and the states a disk may be in after power was lost in the middle.

A file's content is safe once the file was synced after it; an entry of a folder (a new file, a new folder, a rename, a
removal) once the folder was. Everything else may have happened or not, and a file not synced may be torn.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Operation:
    kind: str
    path: Path
    target: Path | None = None
    content: bytes = b""

    @property
    def folder(self) -> Path:
        return (self.target or self.path).parent


class Recorder:
    """Stands in front of the file functions the writer uses; `before` hears of each operation and may raise."""

    def __init__(self, patch: pytest.MonkeyPatch, before: Callable[[Operation], None] = lambda operation: None) -> None:
        self.operations: list[Operation] = []
        self.before = before
        self.real_open, self.real_write, self.real_mkdir, self.real_rename = os.open, os.write, Path.mkdir, Path.rename
        self.real_replace, self.real_fsync, self.real_rmtree = os.replace, os.fsync, shutil.rmtree
        self.written: dict[int, Path] = {}
        """Files being written, by descriptor."""
        recorder = self

        def opened(path: Any, flags: int, *rest: Any, **more: Any) -> int:
            new = bool(flags & os.O_EXCL)
            if new:
                recorder.note(Operation("create", Path(path)))
            descriptor = recorder.real_open(path, flags, *rest, **more)
            recorder.written.pop(descriptor, None)
            if new:
                recorder.written[descriptor] = Path(path)
            return descriptor

        def wrote(descriptor: int, content: Any) -> int:
            if descriptor in recorder.written:
                recorder.note(Operation("write", recorder.written[descriptor], content=bytes(content)))
            return recorder.real_write(descriptor, content)

        def made(path: Path, *rest: Any, **more: Any) -> None:
            if not path.exists():
                recorder.note(Operation("mkdir", path))
            recorder.real_mkdir(path, *rest, **more)

        def renamed(path: Path, target: Path) -> Path:
            recorder.note(Operation("rename", path, Path(target)))
            return recorder.real_rename(path, target)

        def replaced(path: Path, target: Path) -> None:
            recorder.note(Operation("rename", Path(path), Path(target)))
            recorder.real_replace(path, target)

        def synced(descriptor: int) -> None:
            recorder.note(Operation("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}"))))
            recorder.real_fsync(descriptor)

        def removed(path: Path, *rest: Any, **more: Any) -> None:
            if Path(path).exists():
                recorder.note(Operation("remove", Path(path)))
            recorder.real_rmtree(path, *rest, **more)

        patch.setattr(os, "open", opened)
        patch.setattr(os, "write", wrote)
        patch.setattr(Path, "mkdir", made)
        patch.setattr(Path, "rename", renamed)
        patch.setattr(os, "replace", replaced)
        patch.setattr(os, "fsync", synced)
        patch.setattr(shutil, "rmtree", removed)

    def note(self, operation: Operation) -> None:
        self.before(operation)
        self.operations.append(operation)


def after_power_loss(operations: list[Operation], start: Path, scratch: Path) -> Iterator[Path]:
    """Every folder that `start` may have become if power was lost after these operations (paths are below `start`)."""
    fates = [_fates(operation, operations[index + 1 :]) for index, operation in enumerate(operations)]
    for number, chosen in enumerate(itertools.product(*fates)):
        world = scratch / str(number)
        shutil.copytree(start, world)
        try:
            for operation, fate in zip(operations, chosen, strict=True):
                _apply(operation, fate, start, world)
        except OSError:
            continue
        else:
            yield world
        finally:
            shutil.rmtree(world)


def _fates(operation: Operation, later: list[Operation]) -> list[str]:
    if operation.kind == "sync":
        return ["nothing"]
    if operation.kind == "write":
        safe = any(other.kind == "sync" and other.path == operation.path for other in later)
        return ["whole"] if safe else ["whole", "torn", "nothing"]
    safe = any(other.kind == "sync" and other.path == operation.folder for other in later)
    if operation.kind == "remove":
        return ["whole"] if safe else ["whole", "torn", "nothing"]
    return ["whole"] if safe else ["whole", "nothing"]


def _apply(operation: Operation, fate: str, start: Path, world: Path) -> None:
    path = world / operation.path.relative_to(start)
    if fate == "nothing":
        return
    if operation.kind == "mkdir":
        path.mkdir()
    elif operation.kind == "create":
        path.touch()
        path.write_bytes(b"")
    elif operation.kind == "write":
        if not path.exists():
            return  # its entry was lost, and with it what was written
        with path.open("ab") as file:
            file.write(operation.content if fate == "whole" else operation.content[: len(operation.content) // 2])
    elif operation.kind == "rename":
        assert operation.target is not None
        path.replace(world / operation.target.relative_to(start))
    elif operation.kind == "remove":
        if fate == "torn":
            next(file for file in sorted(path.rglob("*")) if file.is_file()).unlink()
        else:
            shutil.rmtree(path)
