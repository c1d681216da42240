"""What TensorBoard is told."""

from pathlib import Path
from typing import Any

import pytest

from engram.cli import main
from engram.experiment.config import RunConfig
from engram.experiment.events import Event
from engram.experiment.result import read_result
from engram.experiment.run import run
from engram.experiment.save_interval import SaveInterval
from engram.experiment.tensorboard import TensorBoardLog

pytest.importorskip("tensorboard")


def seen_in(run: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    seen = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "images": 0})
    seen.Reload()
    return seen


def test_scalars_images_and_hparams_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    result = read_result(tmp_path / "run" / "result.json")
    seen = seen_in(tmp_path / "run")
    average = seen.Scalars("accuracy/average")
    assert [point.value for point in average] == pytest.approx(result.evaluation.average_accuracy_after_task)
    assert average[-1].step == result.images_seen // 10
    assert len(seen.Scalars("accuracy/task 1")) == 2
    assert len(seen.Scalars("summarizing/gradient_matching")) == result.summarize_rounds > 0
    assert seen.Scalars("prequential/accuracy")[-1].value == pytest.approx(result.prequential["accuracy"], abs=1e-3)
    assert len(seen.Images("memory")) == 2
    assert "_hparams_/session_start_info" in seen.summary_metadata


@pytest.mark.parametrize("stop", [3, 4, 6])
def test_what_was_logged_before_an_interruption_stays(stop: int, tmp_path: Path) -> None:
    """Four batches a task: the checkpoint it goes on from is at a batch, or at the end of a task."""
    config = RunConfig(
        "er", dataset="digits", tasks=2, images_per_class=20, memory_size=4, settings={"net": {"width": 8}}
    )
    first = TensorBoardLog(config, tmp_path)

    def lose_power(event: Event) -> None:
        first(event)
        if event["event"] == "batch" and first.batch == stop + 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path, checkpoint_every=SaveInterval(batches=stop), on_event=lose_power)
    first.close()
    again = TensorBoardLog(config, tmp_path)
    result = run(config, tmp_path, resume=True, on_event=again)
    again.close()
    points = seen_in(tmp_path).Scalars("accuracy/average")
    assert [point.step for point in points] == [4, 8]
    assert [point.value for point in points] == pytest.approx(result.evaluation.average_accuracy_after_task)


def test_an_unknown_log_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "er", "digits", "--log", "paper", "--out", str(tmp_path)])
