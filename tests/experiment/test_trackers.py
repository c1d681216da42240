"""What Weights & Biases and MLflow are told, without a network."""

import time
from pathlib import Path

import pytest

from engram.cli import main
from engram.experiment.result import RunResult, read_result

OPTIONS = ["--tasks", "2", "--images-per-class", "20", "--memory-size", "4", "--net.width", "8"]


def logged_run(log: str, out: Path, *more: str) -> RunResult:
    assert main(["run", "er", "digits", *OPTIONS, "--log", log, "--out", str(out), *more]) == 0
    return read_result(out / "result.json")


def written_by_the_service(file: Path, last: bytes) -> bytes:
    """Return the content of a file once it holds `last`. The service of W&B writes it, and may end after the run."""
    end = time.monotonic() + 60
    while last not in file.read_bytes() and time.monotonic() < end:
        time.sleep(0.1)
    return file.read_bytes()


def test_mlflow_holds_figures_settings_and_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    result = logged_run("mlflow", tmp_path / "run")
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "run" / "mlruns").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("engram").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["method"] == "er"
    assert run.data.params["net.width"] == "8"
    history = client.get_metric_history(run.info.run_id, "accuracy/average")
    assert [point.value for point in history] == pytest.approx(result.evaluation.average_accuracy_after_task)
    assert history[-1].step == result.images_seen // 10
    assert run.data.metrics["average_end_accuracy"] == pytest.approx(result.evaluation.average_end_accuracy)
    assert len(client.list_artifacts(run.info.run_id, "memory")) == 2


def test_weights_and_biases_writes_a_run_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    result = logged_run("wandb", tmp_path / "run")
    (file,) = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    content = written_by_the_service(file, b"average_end_accuracy")
    assert b"accuracy/average" in content
    assert f"{result.evaluation.average_end_accuracy}".encode()[:8] in content
    assert b"memory" in content


def test_a_log_that_is_not_installed_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(__import__("sys").modules, "mlflow", None)
        assert main(["run", "er", "digits", *OPTIONS, "--log", "mlflow", "--out", str(tmp_path / "run")]) == 1
    assert "MLflow is not installed: install it with `pip install mlflow-skinny`" in capsys.readouterr().err
