"""Write the events of a run to MLflow: to MLFLOW_TRACKING_URI, or to the folder `mlruns` of the run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from engram.base.errors import InputError
from engram.experiment.config import RunConfig
from engram.experiment.event_log import EventLog

EXPERIMENT = "engram"
TAG = "engram_run"
"""Name of the tag by which a resumed run is found again."""
LONGEST_VALUE = 500
"""Most characters of a setting that MLflow takes in every version."""


class MlflowLog(EventLog):
    """Writes the events of one run to the experiment "engram".

    Args:
        config: configuration of the run.
        run: folder of the run.
    """

    def __init__(self, config: RunConfig, run: Path) -> None:
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise InputError("MLflow is not installed: install it with `pip install mlflow-skinny`") from error
        super().__init__(config, run)
        self._new_client = MlflowClient
        self._client: Any = None
        self._id = ""

    def open(self) -> None:
        place = os.environ.get("MLFLOW_TRACKING_URI")
        if not place:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            place = (self.run.resolve() / "mlruns").as_uri()
        self._client = self._new_client(tracking_uri=place)
        found = self._client.get_experiment_by_name(EXPERIMENT)
        experiment = found.experiment_id if found else self._client.create_experiment(EXPERIMENT)
        before = self._client.search_runs([experiment], f"tags.{TAG} = '{self.identity}'")
        if before and self.batch:
            self._id = before[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return
        self._id = self._client.create_run(experiment, run_name=self.run.name, tags={TAG: self.identity}).info.run_id
        for name, value in self.settings().items():
            self._client.log_param(self._id, name, str(value)[:LONGEST_VALUE])

    def scalars(self, values: dict[str, float], batch: int) -> None:
        for name, value in values.items():
            self._client.log_metric(self._id, name, value, step=batch)

    def picture(self, path: Path) -> None:
        self._client.log_artifact(self._id, str(path), "memory")

    def outcome(self, measured: dict[str, float]) -> None:
        self.scalars(measured, self.batch)
        self._client.set_terminated(self._id, "FINISHED")
        self.opened = False

    def close(self) -> None:
        if self.opened:
            self._client.set_terminated(self._id, "KILLED")
