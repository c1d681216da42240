"""Sweeps: retries, a stop that saves, workers and machines that die."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engram.base.errors import InputError
from engram.experiment.config import RunConfig
from engram.experiment.engines import LocalEngine, RayEngine
from engram.experiment.jobs import Job
from engram.experiment.run import Interrupted
from engram.experiment.scheduler import run_jobs, work
from engram.persistence.lock import exclusive_lock

RUN = RunConfig("er", dataset="digits", tasks=3, images_per_class=100, memory_size=8, settings={"net": {"width": 8}})


@dataclass(frozen=True)
class Moody:
    """Fails so often before it succeeds; counts its attempts in its folder."""

    out: Path
    failures: int = 0
    how: str = "raise"

    def run(self, should_stop: Callable[[], bool], on_event: Callable[[Any], None]) -> dict[str, Any]:
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
    heard: list[tuple[int, str, str]] = []
    outcome = run_jobs(jobs, LocalEngine(1), tmp_path / "stop", listen=lambda *told: heard.append(told))
    assert outcome.results == {0: {"name": "good", "attempt": 0}, 1: {"name": "moody", "attempt": 2}}
    assert {job: repr(error) for job, error in outcome.errors.items()} == {2: "RuntimeError('not today')"}
    tries = ["begins", "again", "begins", "again", "begins"]
    assert [what for job, what, _ in heard if job == 1] == [*tries, "done"]
    assert [what for job, what, _ in heard if job == 2] == [*tries, "failed"]
    assert {why for _, what, why in heard if what in ("again", "failed")} == {"RuntimeError: not today"}
    assert not (tmp_path / "stop").exists()


def test_wrong_input_is_not_tried_again(tmp_path: Path) -> None:
    outcome = run_jobs([Moody(tmp_path / "wrong", 9, "input")], LocalEngine(1), tmp_path / "stop")
    assert {job: repr(error) for job, error in outcome.errors.items()} == {0: "InputError('it is wrong')"}
    assert len(list((tmp_path / "wrong").iterdir())) == 1


def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    jobs = [Moody(tmp_path / "deadly", 1, "die"), Moody(tmp_path / "a"), Moody(tmp_path / "b")]
    outcome = run_jobs(jobs, LocalEngine(1), tmp_path / "stop")
    assert sorted(outcome.results) == [0, 1, 2]
    assert outcome.results[0]["attempt"] == 1


def test_one_that_always_dies_fails_alone(tmp_path: Path) -> None:
    jobs = [Moody(tmp_path / "deadly", 9, "die"), *(Moody(tmp_path / f"good-{index}") for index in range(4))]
    outcome = run_jobs(jobs, LocalEngine(2), tmp_path / "stop")
    assert sorted(outcome.results) == [1, 2, 3, 4]
    assert list(outcome.errors) == [0]
    assert all(result["attempt"] == 0 for result in outcome.results.values())


@dataclass(frozen=True)
class Endless:
    """Works until it is asked to stop, and then saves."""

    out: Path

    def run(self, should_stop: Callable[[], bool], on_event: Callable[[Any], None]) -> dict[str, Any]:
        self.out.mkdir()
        while not should_stop():
            time.sleep(0.01)
        (self.out / "saved").touch()
        raise Interrupted("stopped")


class Threads:
    """An engine whose futures never say that they run, as Ray's do not."""

    workers = 2

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def act() -> None:
            try:
                future.set_result(work(*arguments))
            except Exception as error:
                future.set_exception(error)

        threading.Thread(target=act).start()
        return future

    def event_queue(self) -> None:
        return None

    def close(self) -> None:
        pass


def test_a_stop_lets_what_runs_save_and_begins_nothing(tmp_path: Path) -> None:
    jobs = [Endless(tmp_path / name) for name in ("a", "b", "never")]
    with pytest.raises(Interrupted, match="0 of 3 runs finished"):
        run_jobs(jobs, Threads(), tmp_path / "stop", should_stop=lambda: (tmp_path / "b").exists())
    assert (tmp_path / "a" / "saved").exists()
    assert (tmp_path / "b" / "saved").exists()
    assert not (tmp_path / "never").exists()
    assert not (tmp_path / "stop").exists()


UNTIL_STOPPED = """
from pathlib import Path
from engram.cli.stopping import stop_on_signal
from engram.experiment.engines import LocalEngine
from engram.experiment.run import Interrupted
from engram.experiment.scheduler import run_jobs
from tests.experiment.test_scheduler import Endless
if __name__ == "__main__":
    root = Path({root!r})
    with stop_on_signal() as should_stop:
        try:
            run_jobs([Endless(root / "a"), Endless(root / "b")], LocalEngine(2), root / "stop", should_stop=should_stop)
        except Interrupted:
            (root / "interrupted").touch()
"""


def test_ctrl_c_to_the_whole_group_reaches_no_worker(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(UNTIL_STOPPED.format(root=str(tmp_path)))
    root = Path(__file__).parents[2]
    command = [sys.executable, str(tmp_path / "main.py")]
    process = subprocess.Popen(
        command, start_new_session=True, env=os.environ | {"PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    )
    until = time.monotonic() + 120
    while not ((tmp_path / "a").is_dir() and (tmp_path / "b").is_dir()) and time.monotonic() < until:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=120) == 0
    assert all((tmp_path / name).exists() for name in ("a/saved", "b/saved", "interrupted"))


def test_a_job_waits_for_a_folder_that_another_process_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engram.experiment.scheduler.WAIT_FOR_LOCK", 0.05)
    (tmp_path / "run").mkdir()
    with exclusive_lock(tmp_path / "run"):
        busy: list[str] = []

        def run_it() -> None:
            try:
                work(Job(RUN, tmp_path / "run"), 0, tmp_path / "stop", {})
            except Interrupted as stopped:
                busy.append(str(stopped))

        thread = threading.Thread(target=run_it)
        thread.start()
        time.sleep(1.0)
        assert thread.is_alive()
        (tmp_path / "stop").touch()
        thread.join(timeout=60)
    assert busy == ["stopped before it began"]
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_ray_cluster_leaves_it_to_us_to_answer_signals() -> None:
    pytest.importorskip("ray")
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        ours = signal.getsignal(signal.SIGTERM)
        engine = RayEngine("local")
        engine.close()
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)


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
        outcome = run_jobs(jobs, engine, tmp_path / "stop", listen=lambda job, what, why: heard.append(what))
        killer.join()
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert sorted(outcome.results) == [0, 1, 2, 3]
    assert "again" in heard
    assert len({str(result.evaluation.matrix) for result in outcome.results.values()}) == 1
    for job in jobs:
        assert (job.out / "events.jsonl").read_text().count('"event": "end"') == 1
