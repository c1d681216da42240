"""One run: what it writes, that it resumes exactly, that it refuses what would mix runs up."""

import dataclasses
import json
import multiprocessing
import os
import re
import signal
import subprocess
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import yaml
from PIL import Image

from engram import InputError, Learner, __version__
from engram.experiment.config import RunConfig
from engram.experiment.engines import LocalEngine
from engram.experiment.events import Event
from engram.experiment.folder import source_commit
from engram.experiment.jobs import Job
from engram.experiment.result import RunResult
from engram.experiment.run import Interrupted, run
from engram.experiment.scheduler import run_jobs
from tests.helpers import SMALL, SMALL_THETA

CONFIG = RunConfig(
    method="scr+ssd",
    tasks=2,
    images_per_class=30,
    memory_size=8,
    slots_per_class=1,
    boundary_gap=4,
    keep_originals=True,
    settings=SMALL | SMALL_THETA,
)
"""Twelve batches, a round every three."""


def without_times(result: RunResult) -> RunResult:
    return dataclasses.replace(result, seconds={})


def run_all(jobs: list[Job], out: Path, **options: Any) -> list[RunResult]:
    """Several runs as `engram run --seeds` does them: the first error stops all, after they saved."""
    outcome = run_jobs(
        jobs, LocalEngine(2), out / "stop", attempts=1, stop_on_failure=True, wait_for_locks=False, **options
    )
    for error in outcome.errors.values():
        raise error
    return [outcome.results[position] for position in range(len(jobs))]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    out = tmp_path_factory.mktemp("runs") / "whole"
    return out, run(CONFIG, out)


def test_result_has_what_tables_need(finished: tuple[Path, RunResult]) -> None:
    out, result = finished
    content = json.loads((out / "result.json").read_text())
    assert dataclasses.replace(RunResult.from_dict(content), seconds=result.seconds) == result
    chosen = result.config.options
    assert (result.method, chosen["dataset"], chosen["stream"], result.seed) == ("scr+ssd", "digits", "strict", 0)
    assert (chosen["tasks"], chosen["classes_per_task"], chosen["image_size"], chosen["repeats"]) == (2, 2, 16, 1)
    assert content["config"]["settings"]["summarize"]["gamma"] == 1.0
    assert content["version"] == __version__
    assert result.images_seen == 120
    assert result.summarize_rounds >= 2
    assert result.footprint["images"] == 8 * 4 * 256
    assert chosen["memory_bytes"] is None
    matrix = result.evaluation.matrix
    assert matrix[0][1] is None
    assert result.average_end_accuracy == pytest.approx(sum(matrix[1]) / 2)
    assert content["average_forgetting_all_tasks"] == pytest.approx(content["average_forgetting"] / 2)
    assert set(result.seconds) == {"train", "store", "summarize", "theta", "evaluate", "total"}
    assert all(seconds > 0 for seconds in result.seconds.values())
    assert sum(result.seconds.values()) <= 2 * result.seconds["total"]


def test_folder_holds_config_events_memory_and_environment(finished: tuple[Path, RunResult]) -> None:
    out, result = finished
    config = yaml.safe_load((out / "config.yaml").read_text())
    assert config["memory_size"] == 8
    assert config["summarize"]["interval"] == 3
    assert config["summarize"]["gamma"] == 1.0
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events if event["event"] != "round"] == ["start", "task", "task", "end"]
    rounds = [event for event in events if event["event"] == "round"]
    assert len(rounds) == result.summarize_rounds
    assert all(event["gradient_matching"] > 0 for event in rounds)
    tensors = safetensors.torch.load_file(out / "memory" / "memory.safetensors")
    assert tensors["images"].shape == (8, 1, 16, 16)
    assert tensors["claimed"].sum() == 4
    assert tensors["originals"].shape == (4, 1, 16, 16)
    assert Image.open(out / "memory" / "contact-sheet.png").width > 100
    assert Image.open(out / "memory" / "stream-sheet.png").height > 4 * 48
    assert json.loads((out / "env.json").read_text())["threads"] == 1


@pytest.mark.parametrize("stops", [[1], [5], [6], [8, 9], [12]])
def test_resuming_after_any_batch_gives_the_same_result(
    stops: list[int], finished: tuple[Path, RunResult], tmp_path: Path
) -> None:
    """Between rounds (5), at the end of a task (6), in the middle of an interval (8, 9), after the last batch."""
    out = tmp_path / "broken"
    for stop in stops:
        batches = iter(range(stop - (stops[stops.index(stop) - 1] if stops.index(stop) else 0)))
        next(batches)
        with pytest.raises(Interrupted):
            run(CONFIG, out, resume=True, should_stop=lambda left=batches: next(left, None) is None)
    assert without_times(run(CONFIG, out, resume=True)) == without_times(finished[1])


def test_a_run_cut_off_between_checkpoints_loses_only_what_came_after(
    finished: tuple[Path, RunResult], tmp_path: Path
) -> None:
    class PowerLost(Exception):
        pass

    def cut(event: dict[str, Any], seen: list[int] = []) -> None:  # noqa: B006
        seen.append(1)
        if len(seen) > 10:
            raise PowerLost

    out = tmp_path / "cut"
    with pytest.raises(PowerLost):
        run(CONFIG, out, on_event=cut)
    assert not (out / "result.json").exists()
    assert without_times(run(CONFIG, out, resume=True)) == without_times(finished[1])


def test_a_finished_run_is_read_not_run(finished: tuple[Path, RunResult]) -> None:
    out, result = finished
    before = (out / "events.jsonl").read_text()
    assert without_times(run(CONFIG, out, resume=True)) == without_times(result)
    assert (out / "events.jsonl").read_text() == before


def test_folders_are_not_mixed_up(finished: tuple[Path, RunResult], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not empty"):
        run(CONFIG, finished[0])
    stopped = tmp_path / "stopped"
    with pytest.raises(Interrupted):
        run(CONFIG, stopped, should_stop=lambda: True)
    for folder in (stopped, finished[0]):
        with pytest.raises(InputError, match="another configuration"):
            run(CONFIG.replace(memory_size=9), folder, resume=True)


def test_a_run_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """Its config.yaml lacks settings that came later, and has the others in another order."""
    run(CONFIG, tmp_path / "run")
    file = tmp_path / "run" / "config.yaml"
    content = yaml.safe_load(file.read_text())
    del content["prequential"]
    del content["scheme"]["temperature"]
    del content["scheme"]["augment"]["jitter"]
    file.write_text(yaml.safe_dump(content, sort_keys=True))
    hotter = CONFIG.settings | {"scheme": {**CONFIG.settings["scheme"], "temperature": 0.5}}
    for other in ({"prequential": 3}, {"settings": hotter}):
        with pytest.raises(InputError, match="another configuration"):
            run(CONFIG.replace(**other), tmp_path / "run", resume=True)
    assert run(CONFIG, tmp_path / "run", resume=True).method == CONFIG.method
    file.write_text("[unreadable")
    with pytest.raises(InputError, match="another configuration"):
        run(CONFIG, tmp_path / "run", resume=True)


def test_paper_stream_claims_its_share_and_announces_boundaries(tmp_path: Path) -> None:
    config = RunConfig(
        method="scr+dynamic", stream="paper", tasks=2, batch=2, images_per_class=4, memory_size=9, settings=SMALL
    )
    result = run(config, tmp_path / "paper")
    assert result.config.options["slots_per_class"] == 2
    assert result.config.options["classes_total"] == 4
    assert Learner.load(tmp_path / "paper" / "checkpoint").explicit_boundaries
    assert yaml.safe_load((tmp_path / "paper" / "config.yaml").read_text())["slots_per_class"] == 2


def test_several_runs_give_the_same_results_in_order(finished: tuple[Path, RunResult], tmp_path: Path) -> None:
    jobs = [Job(CONFIG.replace(seed=seed), tmp_path / str(seed)) for seed in (1, 0)]
    heard: list[tuple[int, str]] = []
    results = run_all(jobs, tmp_path, on_event=lambda job, event: heard.append((job, event["event"])))
    assert [result.seed for result in results] == [1, 0]
    assert without_times(results[1]) == without_times(finished[1])
    assert {job for job, event in heard if event == "end"} == {0, 1}
    assert sum(event == "batch" for _, event in heard) == 24


def test_several_runs_stop_when_asked_and_go_on_later(tmp_path: Path) -> None:
    slow = CONFIG.replace(repeats=25)
    whole = run(slow, tmp_path / "whole")
    jobs = [Job(slow, tmp_path / "a")]
    heard: list[str] = []
    with pytest.raises(Interrupted):
        run_all(
            jobs,
            tmp_path,
            on_event=lambda _, event: heard.append(event["event"]),
            should_stop=lambda: "batch" in heard,
        )
    (result,) = run_all(jobs, tmp_path)
    assert without_times(result) == without_times(whole)


def test_a_worker_that_is_killed_lets_the_others_save(tmp_path: Path) -> None:
    endless = CONFIG.replace(tasks=5, images_per_class=None, repeats=50)
    killed: list[int] = []

    def hear(job: int, event: Event) -> None:
        if not killed and len(list(tmp_path.glob("*/events.jsonl"))) == 2:
            killed.append(max(child.pid or 0 for child in multiprocessing.active_children()))
            os.kill(killed[0], signal.SIGKILL)

    with pytest.raises(BrokenProcessPool):
        run_all([Job(endless, tmp_path / name) for name in ("a", "b")], tmp_path, on_event=hear)
    assert len(list(tmp_path.glob("*/checkpoint/CURRENT"))) == 1


def test_several_runs_raise_what_went_wrong(tmp_path: Path) -> None:
    """And lets the other runs save what they have: one that goes on fails when the folder of its run is taken away."""
    endless = CONFIG.replace(tasks=5, images_per_class=None, repeats=50)
    begun: set[int] = set()

    def hear(job: int, event: Event) -> None:
        begun.add(job)
        if len(begun) == 2:
            (tmp_path / "bad" / "config.yaml").unlink(missing_ok=True)

    with pytest.raises(FileNotFoundError, match="moved or removed"):
        run_all([Job(endless, tmp_path / name) for name in ("good", "bad")], tmp_path, on_event=hear)
    assert not (tmp_path / "good" / "result.json").exists()
    assert (tmp_path / "good" / "checkpoint" / "CURRENT").is_file()


def test_the_commit_of_the_source_is_known_only_of_a_repository_that_has_it(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    git("init")
    assert source_commit(package) is None, "the package only lies inside of the repository"
    git("add", ".")
    git("commit", "-m", "first")
    commit = source_commit(package)
    assert commit is not None
    assert re.fullmatch("[0-9a-f]{40}", commit)
    (package / "__init__.py").write_text("changed = True")
    assert source_commit(package) == f"{commit} + changes"
