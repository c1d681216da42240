"""What TensorBoard is told."""

import json
from pathlib import Path

import pytest

from engram.cli import main

pytest.importorskip("tensorboard")


def test_scalars_images_and_hparams_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    options = [
        "--tasks",
        "2",
        "--images-per-class",
        "20",
        "--memory-size",
        "4",
        "--net.width",
        "8",
        "--theta.width",
        "4",
    ]
    options += ["--summarize.queue", "4", "--summarize.interval", "2", "--prequential", "1", "--log", "tensorboard"]
    assert main(["run", "scr+ssd", "digits", *options, "--out", str(tmp_path / "run")]) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    seen = EventAccumulator(str(tmp_path / "run" / "tensorboard"), size_guidance={"scalars": 0, "images": 0})
    seen.Reload()
    average = seen.Scalars("accuracy/average")
    assert [point.value for point in average] == pytest.approx(result["average_accuracy_after_task"])
    assert average[-1].step == result["images_seen"] // 10
    assert len(seen.Scalars("accuracy/task 1")) == 2
    assert len(seen.Scalars("summarizing/gradient_matching")) == result["summarize_rounds"] > 0
    assert seen.Scalars("prequential/accuracy")[-1].value == pytest.approx(result["prequential"]["accuracy"], abs=1e-3)
    assert len(seen.Images("memory")) == 2
    assert "_hparams_/session_start_info" in seen.summary_metadata


def test_an_unknown_log_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "er", "digits", "--log", "paper", "--out", str(tmp_path)])
