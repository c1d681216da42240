"""Write the events of a run for TensorBoard: accuracies and losses, pictures of the memory, and the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from engram.base.errors import InputError
from engram.experiment.config import RunConfig
from engram.experiment.events import Event, loss_terms
from engram.experiment.pictures import snapshots

FOLDER = "tensorboard"


class TensorBoardLog:
    """Writes the events of one run into its folder: scalars, images and hparams. Call it with each event.

    Args:
        config: configuration of the run.
        run: folder of the run.
    """

    def __init__(self, config: RunConfig, run: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InputError("TensorBoard is not installed: install it with `pip install tensorboard`") from error
        self.config, self.run = config, run
        self.batch = 0
        self._new_writer = SummaryWriter
        self._writer: Any = None

    def __call__(self, event: Event) -> None:
        """Write one event."""
        kind = event["event"]
        if kind == "start":
            self.batch = event["done"]
            folder = self.run / FOLDER
            self._writer = self._new_writer(str(folder), purge_step=self.batch + 1 if folder.exists() else None)
        elif kind == "batch":
            self.batch += 1
        elif kind == "round":
            for name, value in loss_terms(event).items():
                self._writer.add_scalar(f"summarizing/{name}", value, event["batch"])
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
                self._writer.add_image(
                    "memory", np.asarray(Image.open(path, formats=["PNG"])), self.batch, dataformats="HWC"
                )
        self._writer.flush()

    def _end(self, event: Event) -> None:
        chosen = self.config.to_dict()
        roles = chosen.pop("settings")
        chosen |= {f"{role}.{name}": value for role, own in roles.items() for name, value in own.items()}
        facts = {
            name: value if isinstance(value, int | float | bool | str) else str(value) for name, value in chosen.items()
        }
        measured = {"hparam/average_end_accuracy": event["average_end_accuracy"]}
        self._writer.add_hparams(facts, measured, run_name=".")

    def close(self) -> None:
        """Write everything that is not written yet, and close the files."""
        if self._writer is not None:
            self._writer.close()
