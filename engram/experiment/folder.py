"""The folder of a run: config.yaml, events.jsonl, result.json, classes.json, env.json, checkpoint/ and memory/."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engram.base.errors import InputError
from engram.experiment.config import RunConfig, config_text, differences
from engram.experiment.result import RunResult, read_result
from engram.persistence.files import replace_file, write_json
from engram.persistence.lock import LOCK
from engram.persistence.restore import environment


class RunFolder:
    """Reads and writes what a run keeps on disk.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint, self.memory = path / "checkpoint", path / "memory"
        self._config, self._events, self._result = path / "config.yaml", path / "events.jsonl", path / "result.json"

    def is_empty(self) -> bool:
        """Return whether the folder does not exist, or holds nothing but the lock file."""
        return not self.path.exists() or all(path.name == LOCK for path in self.path.iterdir())

    def open(self, config: RunConfig, class_names: Sequence[str]) -> None:
        """Write the configuration, the class names and the environment; refuse a folder with another configuration."""
        if self._config.is_file() and (other := differences(self._config.read_text(), config)):
            raise InputError(
                f"{self.path} already has a run of another configuration (in its config.yaml, {'; '.join(other[:5])}): "
                "use another folder"
            )
        replace_file(self._config, config_text(config).encode())
        self._end_torn_line()
        write_json(self.path / "classes.json", list(class_names))
        if not (self.path / "env.json").exists():
            write_json(self.path / "env.json", _facts())

    def require_there(self) -> None:
        """Raise a FileNotFoundError if the folder was moved or removed during the run."""
        if not self._config.is_file():
            raise FileNotFoundError(f"{self.path} was moved or removed during the run: put it back and resume the run")

    def append(self, event: dict[str, Any]) -> None:
        """Add an event to events.jsonl, together with the current time."""
        self.require_there()
        with self._events.open("a") as file:
            file.write(json.dumps({"time": round(time.time(), 3)} | event) + "\n")

    def result(self) -> RunResult | None:
        """Return the result if the run is finished, otherwise None."""
        return read_result(self._result) if self._result.is_file() else None

    def write_result(self, result: RunResult) -> None:
        """Write result.json. After a crash, the file is either complete or not there."""
        write_json(self._result, result.to_dict())

    def _end_torn_line(self) -> None:
        """Begin a new line if a crash cut off the last one."""
        if self._events.is_file() and self._events.stat().st_size and not self._events.read_bytes().endswith(b"\n"):
            with self._events.open("a") as file:
                file.write("\n")


def class_names_of(folder: Path) -> list[str]:
    """Return the class names of the run in a folder, by class number; an empty list if the folder has none."""
    file = folder / "classes.json"
    return [str(name) for name in json.loads(file.read_text())] if file.is_file() else []


def _facts() -> dict[str, Any]:
    command = [Path(sys.argv[0]).name, *sys.argv[1:]]
    return environment() | {"python": platform.python_version(), "numpy": np.__version__, "command": command}
