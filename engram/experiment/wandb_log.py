"""Write the events of a run to Weights & Biases. WANDB_MODE=offline keeps everything in the run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engram.base.errors import InputError
from engram.experiment.config import RunConfig
from engram.experiment.event_log import EventLog

PROJECT = "engram"


class WandbLog(EventLog):
    """Writes the events of one run to the project "engram", or to the one that WANDB_PROJECT names.

    Args:
        config: configuration of the run.
        run: folder of the run.
    """

    def __init__(self, config: RunConfig, run: Path) -> None:
        try:
            import wandb
        except ImportError as error:
            raise InputError("Weights & Biases is not installed: install it with `pip install wandb`") from error
        super().__init__(config, run)
        self._wandb: Any = wandb
        self._run: Any = None

    def open(self) -> None:
        self._run = self._wandb.init(
            project=None if self._wandb.Settings().project else PROJECT,
            name=self.run.name,
            id=self.identity,
            dir=str(self.run),
            config=self.settings(),
            resume="allow",
            reinit="create_new",
        )

    def scalars(self, values: dict[str, float], batch: int) -> None:
        self._run.log(values, step=batch)

    def picture(self, path: Path) -> None:
        self._run.log({"memory": self._wandb.Image(str(path))}, step=self.batch)

    def outcome(self, measured: dict[str, float]) -> None:
        self._run.summary.update(measured)

    def close(self) -> None:
        if self.opened:
            self._run.finish()
