"""Many runs, wherever there is a free core: on this machine or on a Ray cluster, through one interface.

A job writes everything into its own folder, which every machine must see, so nothing but "done" or "failed" travels: a
job that was lost with its machine, or that failed, is started again and goes on from its last checkpoint. Ctrl-C is a
file that every job looks for: it saves and leaves.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from engram.errors import InputError
from engram.experiment.lock import BusyError
from engram.experiment.run import Interrupted

Result = dict[str, Any]

CARRIED = ("ENGRAM_DATA", "ENGRAM_CACHE")
"""Environment that a job takes along."""
LOOK_EVERY = 1.0
"""Seconds between two looks at the stop file, and between two at the jobs."""
WAIT_FOR_LOCK = 5.0
"""Seconds between two tries of a folder in which another process works: its lost predecessor, or another sweep."""


class SweepJob(Protocol):
    """What can be run anywhere: picklable, and resumable in its folder."""

    @property
    def out(self) -> Path: ...

    def run(self, should_stop: Callable[[], bool]) -> Result:
        """Begin, go on, or only read what is finished."""


class Engine(Protocol):
    """Where jobs run."""

    @property
    def workers(self) -> int: ...

    def submit(self, work: Callable[..., Result], *arguments: Any) -> Future[Result]: ...

    def close(self) -> None: ...


@dataclass
class Swept:
    """What came of a sweep, by position of the job."""

    results: dict[int, Result] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    """Why a job failed, after all its attempts."""


Happened = Literal["begins", "done", "again", "failed"]
Listener = Callable[[int, Happened, str], None]
"""Hears of a job's position, what became of it, and why it failed."""


def sweep(
    jobs: Sequence[SweepJob],
    engine: Engine,
    stop_file: Path,
    *,
    attempts: int = 3,
    listen: Listener = lambda job, what, why: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Swept:
    """Run all jobs, as many at a time as the engine has workers. One that fails is tried again, and then left; the
    others go on.

    When `should_stop` turns true, every job that runs saves, none begins, and `Interrupted` is raised. The stop file
    must be this sweep's alone.
    """
    stop_file = stop_file.absolute()
    stop_file.parent.mkdir(parents=True, exist_ok=True)
    stop_file.unlink(missing_ok=True)
    environment = {name: os.environ[name] for name in CARRIED if name in os.environ}
    swept, tried = Swept(), Counter[int]()
    waiting = deque(range(len(jobs)))
    running: dict[Future[Result], int] = {}
    try:
        while running or (waiting and not stop_file.exists()):
            if should_stop():
                stop_file.touch()
            while waiting and len(running) < engine.workers and not stop_file.exists():
                position = waiting.popleft()
                tried[position] += 1
                listen(position, "begins", "")
                running[engine.submit(work, jobs[position], stop_file, environment)] = position
            finished, _ = wait(running, timeout=LOOK_EVERY, return_when=FIRST_COMPLETED)
            for future in finished:
                position, error = running.pop(future), future.exception()
                cause = _cause(error)
                if isinstance(cause, Interrupted):
                    continue
                if error is None:
                    swept.results[position] = future.result()
                    listen(position, "done", "")
                    continue
                reason = f"{type(cause).__name__}: {cause}"
                if tried[position] < attempts and _worth_another(cause):
                    waiting.append(position)
                    listen(position, "again", reason)
                else:
                    swept.failures[position] = reason
                    listen(position, "failed", reason)
    finally:
        stop_file.touch()
        engine.close()
        with suppress(OSError):
            stop_file.unlink()
    if len(swept.results) + len(swept.failures) < len(jobs):
        raise Interrupted(f"stopped with {len(swept.results)} of {len(jobs)} runs finished")
    return swept


def work(job: SweepJob, stop_file: Path, environment: dict[str, str]) -> Result:
    """One job in a worker: one thread, and an eye on the stop file."""
    import torch

    torch.set_num_threads(1)
    os.environ.update(environment)
    looked, stop = 0.0, False

    def should_stop() -> bool:
        nonlocal looked, stop
        if not stop and time.monotonic() - looked > LOOK_EVERY:
            looked, stop = time.monotonic(), stop_file.exists()
        return stop

    while not should_stop():
        try:
            return job.run(should_stop)
        except BusyError:
            time.sleep(WAIT_FOR_LOCK)
    raise Interrupted("stopped before it began")


def _cause(error: BaseException | None) -> BaseException | None:
    """What a job itself raised, from under what an engine wraps it in."""
    return getattr(error, "cause", None) or error


def _worth_another(cause: BaseException | None) -> bool:
    """What was wrong with the input will be wrong again."""
    return not isinstance(cause, InputError)
