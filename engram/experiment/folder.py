"""The folder of a run: config.yaml, events.jsonl, result.json, classes.json, env.json, checkpoint/ and memory/."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engram.base.errors import InputError
from engram.experiment.config import LARGEST_CONFIG, RunConfig, config_text, differences
from engram.experiment.result import RunResult, read_json, read_result
from engram.persistence.files import PARTIAL, append_line, read_plain, replace_file, write_json
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
        """Return whether the folder does not exist, or holds nothing but the lock file and files never finished."""
        return not self.path.exists() or all(
            path.name == LOCK or path.name.endswith(PARTIAL) for path in self.path.iterdir()
        )

    def open(self, config: RunConfig, class_names: Sequence[str]) -> None:
        """Write the configuration, the class names and the environment.

        A folder with another configuration is refused, and one whose inner folders are links to elsewhere.
        """
        for inner in (self.checkpoint, self.memory):
            if inner.is_symlink():
                raise InputError(f"{inner} is a link: a folder is expected there, so remove the link")
        for partial in self.path.glob(f".*{PARTIAL}"):
            partial.unlink(missing_ok=True)
        there = self._config.exists() or self._config.is_symlink()
        if there and (other := differences(read_plain(self._config, LARGEST_CONFIG), config)):
            raise InputError(
                f"{self.path} already has a run of another configuration (in its config.yaml, {'; '.join(other[:5])}): "
                "use another folder"
            )
        replace_file(self._config, config_text(config).encode())
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
        append_line(self._events, json.dumps({"time": round(time.time(), 3)} | event))

    def result(self) -> RunResult | None:
        """Return the result if the run is finished, otherwise None."""
        return read_result(self._result) if self._result.is_file() else None

    def write_result(self, result: RunResult) -> None:
        """Write result.json. After a crash, the file is either complete or not there."""
        write_json(self._result, result.to_dict())


def class_names_of(folder: Path) -> list[str]:
    """Return the class names of the run in a folder, by class number; an empty list if the folder has none."""
    file = folder / "classes.json"
    names = read_json(file) if file.is_file() else []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{file} is not a list of names: remove it, or run again")
    return names


def _facts() -> dict[str, Any]:
    command = [Path(sys.argv[0]).name, *sys.argv[1:]]
    facts = {"python": platform.python_version(), "numpy": np.__version__, "command": command}
    return environment() | facts | {"commit": source_commit(Path(__file__).parents[1])}


def source_commit(package: Path) -> str | None:
    """Return the git commit of the code in a folder, with "+ changes" if files differ from it; None without git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # the folder may only lie inside of another repository
        return git("rev-parse", "HEAD") + (" + changes" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None
