"""What logs of other programs are told about a run: figures by batch, pictures of the memory, settings and outcome."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from engram.experiment.config import RunConfig
from engram.experiment.events import Event, loss_terms
from engram.experiment.pictures import snapshots

Fact = int | float | bool | str


class EventLog:
    """Passes the events of one run on. Call it with each event. Subclasses write to one program.

    Args:
        config: configuration of the run.
        run: folder of the run.
    """

    def __init__(self, config: RunConfig, run: Path) -> None:
        self.config, self.run = config, run
        self.batch = 0
        self.opened = False

    def __call__(self, event: Event) -> None:
        """Write one event."""
        kind = event["event"]
        if kind == "start":
            self.batch = event["done"]
            self.open()
            self.opened = True
        elif kind == "batch":
            self.batch += 1
        elif kind == "round":
            self.scalars({f"summarizing/{name}": value for name, value in loss_terms(event).items()}, event["batch"])
        elif kind == "task":
            tasks = {f"accuracy/task {number}": value for number, value in enumerate(event["accuracies"], 1)}
            tested = {f"prequential/{name}": value for name, value in event.get("prequential", {}).items()}
            self.scalars({"accuracy/average": event["average"]} | tasks | tested, self.batch)
            for task, path in snapshots(self.run):
                if task == event["task"]:
                    self.picture(path)
        elif kind == "end":
            self.outcome({"average_end_accuracy": event["average_end_accuracy"]})

    @property
    def identity(self) -> str:
        """A short name of the run that stays the same when it is resumed."""
        return hashlib.sha256(str(self.run.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:16]

    def settings(self) -> dict[str, Fact]:
        """Return every setting of the run by its full name."""
        chosen: dict[str, Any] = self.config.to_dict()
        roles = chosen.pop("settings")
        chosen |= {f"{role}.{name}": value for role, own in roles.items() for name, value in own.items()}
        return {name: value if isinstance(value, Fact) else str(value) for name, value in chosen.items()}

    def open(self) -> None:
        """Begin to write, or go on after an interruption, from `batch` on."""
        raise NotImplementedError

    def scalars(self, values: dict[str, float], batch: int) -> None:
        """Write figures that belong to a batch."""
        raise NotImplementedError

    def picture(self, path: Path) -> None:
        """Write a picture of the memory at the end of a task."""
        raise NotImplementedError

    def outcome(self, measured: dict[str, float]) -> None:
        """Write what came out in the end."""
        raise NotImplementedError

    def close(self) -> None:
        """Write everything that is not written yet, and close the files."""
        raise NotImplementedError
