"""Write the events of a run for TensorBoard: accuracies and losses, pictures of the memory, and the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from engram.base.errors import InputError
from engram.experiment.config import RunConfig
from engram.experiment.event_log import EventLog

FOLDER = "tensorboard"


class TensorBoardLog(EventLog):
    """Writes the events of one run into its folder: scalars, images and hparams.

    Args:
        config: configuration of the run.
        run: folder of the run.
    """

    def __init__(self, config: RunConfig, run: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InputError("TensorBoard is not installed: install it with `pip install tensorboard`") from error
        super().__init__(config, run)
        self._new_writer = SummaryWriter
        self._writer: Any = None

    def open(self) -> None:
        folder = self.run / FOLDER
        self._writer = self._new_writer(str(folder), purge_step=self.batch + 1 if folder.exists() else None)

    def scalars(self, values: dict[str, float], batch: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, batch)
        self._writer.flush()

    def picture(self, path: Path) -> None:
        pixels = np.asarray(Image.open(path, formats=["PNG"]))
        self._writer.add_image("memory", pixels, self.batch, dataformats="HWC")
        self._writer.flush()

    def outcome(self, measured: dict[str, float]) -> None:
        results = {f"hparam/{name}": value for name, value in measured.items()}
        self._writer.add_hparams(self.settings(), results, run_name=".")

    def close(self) -> None:
        if self.opened:
            self._writer.close()
