"""Sweeps: retries, a stop that saves, workers and machines that die."""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engram.core import InputError
from engram.experiment.engines import LocalEngine, RayEngine
from engram.experiment.pool import Job
from engram.experiment.run import Interrupted, RunConfig
from engram.experiment.sweep import sweep

RUN = RunConfig("er", "digits", tasks=3, images_per_class=100, memory_size=8, settings={"net": {"width": 8}})


@dataclass(frozen=True)
class Moody:
    """Fails so often before it succeeds; counts its attempts in its folder."""

    out: Path
    failures: int = 0
    how: str = "raise"

    def run(self, should_stop: Callable[[], bool]) -> dict[str, Any]:
        self.out.mkdir(parents=True, exist_ok=True)
        attempt = len(list(self.out.iterdir()))
        (self.out / f"attempt-{attempt}").touch()
        if attempt < self.failures:
            if self.how == "die":
                os._exit(9)
            raise InputError("it is wrong") if self.how == "input" else RuntimeError("not today")
        return {"name": self.out.name, "attempt": attempt}


def test_failures_are_tried_again_and_then_left(tmp_path: Path) -> None:
    jobs = [Moody(tmp_path / "good"), Moody(tmp_path / "moody", 2), Moody(tmp_path / "bad", 9)]
    heard: list[tuple[int, str]] = []
    swept = sweep(jobs, LocalEngine(1), tmp_path / "stop", listen=lambda job, what: heard.append((job, what)))
    assert swept.results == {0: {"name": "good", "attempt": 0}, 1: {"name": "moody", "attempt": 2}}
    assert swept.failures == {2: "RuntimeError: not today"}
    assert [what for job, what in heard if job == 1] == ["again", "again", "done"]
    assert [what for job, what in heard if job == 2] == ["again", "again", "failed"]
    assert not (tmp_path / "stop").exists()


def test_wrong_input_is_not_tried_again(tmp_path: Path) -> None:
    swept = sweep([Moody(tmp_path / "wrong", 9, "input")], LocalEngine(1), tmp_path / "stop")
    assert swept.failures == {0: "InputError: it is wrong"}
    assert len(list((tmp_path / "wrong").iterdir())) == 1


def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    jobs = [Moody(tmp_path / "deadly", 1, "die"), Moody(tmp_path / "a"), Moody(tmp_path / "b")]
    swept = sweep(jobs, LocalEngine(1), tmp_path / "stop")
    assert sorted(swept.results) == [0, 1, 2]
    assert swept.results[0]["attempt"] == 1


class Waiting:
    """An engine whose jobs begin when told to."""

    workers = 1

    def __init__(self) -> None:
        self.begin = threading.Event()

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def act() -> None:
            future.set_running_or_notify_cancel()
            self.begin.wait()
            try:
                future.set_result(work(*arguments))
            except Exception as error:
                future.set_exception(error)

        threading.Thread(target=act).start()
        return future

    def close(self) -> None:
        self.begin.set()


def test_a_stop_saves_what_runs_and_begins_nothing(tmp_path: Path) -> None:
    engine = Waiting()
    asked = 0

    def should_stop() -> bool:
        nonlocal asked
        asked += 1
        if asked > 1:
            engine.begin.set()
        return True

    with pytest.raises(Interrupted, match="0 of 2 runs finished"):
        sweep([Moody(tmp_path / "a"), Moody(tmp_path / "b")], engine, tmp_path / "stop", should_stop=should_stop)
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "stop").exists()


def test_a_lost_machine_loses_no_run(tmp_path: Path) -> None:
    """Two nodes of a Ray cluster, one of them killed while its run is under way: every run ends, once."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        doomed = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False)
        engine = RayEngine()
        assert engine.workers == 2
        jobs = [Job(RUN, tmp_path / f"run-{index}") for index in range(4)]

        def kill_when_two_are_under_way() -> None:
            until = time.monotonic() + 120
            while len(list(tmp_path.glob("run-*/events.jsonl"))) < 2 and time.monotonic() < until:
                time.sleep(0.02)
            cluster.remove_node(doomed, allow_graceful=False)

        killer = threading.Thread(target=kill_when_two_are_under_way)
        killer.start()
        heard: list[str] = []
        swept = sweep(jobs, engine, tmp_path / "stop", listen=lambda job, what: heard.append(what))
        killer.join()
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert sorted(swept.results) == [0, 1, 2, 3]
    assert "again" in heard
    assert len({str(result["accuracy_matrix"]) for result in swept.results.values()}) == 1
    for job in jobs:
        assert (job.out / "events.jsonl").read_text().count('"event": "end"') == 1
