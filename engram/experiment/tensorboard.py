"""A run's events for TensorBoard: accuracies and losses as scalars, the memory as an image, the settings as hparams."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from engram.errors import InputError
from engram.experiment.config import RunConfig
from engram.experiment.events import Event
from engram.experiment.pictures import snapshots

FOLDER = "tensorboard"


class TensorBoardLog:
    """Hears the events of one run and writes them into its folder."""

    def __init__(self, config: RunConfig, run: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InputError("TensorBoard is not installed: pip install tensorboard") from error
        self.config, self.run = config, run
        self.batch = 0
        self._new_writer = SummaryWriter
        self._writer: Any = None

    def __call__(self, event: Event) -> None:
        kind = event["event"]
        if kind == "start":
            self.batch = event["done"]
            folder = self.run / FOLDER
            self._writer = self._new_writer(str(folder), purge_step=self.batch + 1 if folder.exists() else None)
        elif kind == "batch":
            self.batch += 1
        elif kind == "round":
            for name in ("gradient_matching", "relationship"):
                self._writer.add_scalar(f"summarizing/{name}", event[name], event["batch"])
        elif kind == "task":
            self._task(event)
        elif kind == "end":
            self._end(event)

    def _task(self, event: Event) -> None:
        self._writer.add_scalar("accuracy/average", event["average"], self.batch)
        for number, accuracy in enumerate(event["accuracies"], 1):
            self._writer.add_scalar(f"accuracy/task {number}", accuracy, self.batch)
        for name, value in event.get("prequential", {}).items():
            self._writer.add_scalar(f"prequential/{name}", value, self.batch)
        for task, path in snapshots(self.run):
            if task == event["task"]:
                self._writer.add_image("memory", np.asarray(Image.open(path)), self.batch, dataformats="HWC")
        self._writer.flush()

    def _end(self, event: Event) -> None:
        chosen = dataclasses.asdict(self.config)
        rooms = chosen.pop("settings")
        chosen |= {f"{room}.{name}": value for room, own in rooms.items() for name, value in own.items()}
        facts = {
            name: value if isinstance(value, int | float | bool | str) else str(value) for name, value in chosen.items()
        }
        measured = {"hparam/average_end_accuracy": event["average_end_accuracy"]}
        self._writer.add_hparams(facts, measured, run_name=".")

    def close(self) -> None:
        """Write what is still held back."""
        if self._writer is not None:
            self._writer.close()
