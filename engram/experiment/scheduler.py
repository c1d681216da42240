"""Many runs, wherever there is a free core: in processes of this machine or on a Ray cluster.

A job writes everything into its own folder, which every machine must see. So a job that was lost with its machine, or
that failed, is started again and goes on from its last checkpoint. Stopping is a file that every job looks for: it
saves and leaves. On this machine jobs can also pass on their events, for a progress bar.
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

from engram.base.errors import InputError
from engram.experiment.events import Event
from engram.experiment.run import Interrupted
from engram.persistence.lock import BusyError

CARRIED = ("ENGRAM_DATA", "ENGRAM_CACHE", "ENGRAM_PLUGINS")
"""Environment variables that a job takes along."""
LOOK_EVERY = 0.5
"""Seconds between two looks at the stop file."""
POLL_EVERY = 0.1
"""Seconds between two looks at the running jobs."""
WAIT_FOR_LOCK = 5.0
"""Seconds between two tries of a folder in which another process works: its lost predecessor, or another sweep."""

OnEvent = Callable[[Event], None]


class SchedulableJob(Protocol):
    """What can be run anywhere: picklable, and resumable in its folder."""

    @property
    def out(self) -> Path: ...

    def run(self, should_stop: Callable[[], bool], on_event: OnEvent) -> Any:
        """Begin, go on, or only read what is finished."""


class EventQueue(Protocol):
    """Carries events from jobs to the scheduler."""

    def put(self, item: tuple[int, Event]) -> None: ...

    def drain(self) -> list[tuple[int, Event]]: ...


class Engine(Protocol):
    """Where jobs run."""

    @property
    def workers(self) -> int: ...

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]: ...

    def event_queue(self) -> EventQueue | None:
        """Return a queue that jobs of this engine can put events into, or None if they cannot."""

    def close(self) -> None: ...


@dataclass
class SweepOutcome:
    """Results and errors of jobs, by the position of the job.

    Args:
        results: what finished jobs returned.
        errors: why jobs failed, after all their attempts.
    """

    results: dict[int, Any] = field(default_factory=dict)
    errors: dict[int, BaseException] = field(default_factory=dict)


Happened = Literal["begins", "done", "again", "failed"]
Listener = Callable[[int, Happened, str], None]
"""Called with the position of a job, what became of it, and why it failed."""


def run_jobs(
    jobs: Sequence[SchedulableJob],
    engine: Engine,
    stop_file: Path,
    *,
    attempts: int = 3,
    stop_on_failure: bool = False,
    wait_for_locks: bool = True,
    listen: Listener = lambda job, what, why: None,
    on_event: Callable[[int, Event], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> SweepOutcome:
    """Run all jobs, as many at a time as the engine has workers.

    Args:
        jobs: the jobs, in the order they begin.
        engine: where they run; it is closed at the end.
        stop_file: path of the file that tells jobs to stop; it must be this call's alone.
        attempts: how often a job is tried. One that fails for its input is not tried again.
        stop_on_failure: let all others save and stop when a job has failed; otherwise they go on.
        wait_for_locks: wait for a folder that another process works in; otherwise the job fails.
        listen: called when a job begins and ends.
        on_event: called with the position of a job and each of its events, where the engine can pass them on.
        should_stop: when it returns true, every job saves, none begins, and `Interrupted` is raised.
    """
    stop_file = stop_file.absolute()
    stop_file.parent.mkdir(parents=True, exist_ok=True)
    stop_file.unlink(missing_ok=True)
    environment = {name: os.environ[name] for name in CARRIED if name in os.environ}
    outcome, tried = SweepOutcome(), Counter[int]()
    waiting = deque(range(len(jobs)))
    running: dict[Future[Any], int] = {}
    events = engine.event_queue() if on_event else None

    def pass_on_events() -> None:
        for position, event in events.drain() if events else []:
            if on_event:
                on_event(position, event)

    try:
        while running or (waiting and not stop_file.exists()):
            if should_stop() or (stop_on_failure and outcome.errors):
                stop_file.touch()
            while waiting and len(running) < engine.workers and not stop_file.exists():
                position = waiting.popleft()
                tried[position] += 1
                listen(position, "begins", "")
                arguments = (jobs[position], position, stop_file, environment, events, wait_for_locks)
                running[engine.submit(work, *arguments)] = position
            finished, _ = wait(running, timeout=POLL_EVERY, return_when=FIRST_COMPLETED)
            pass_on_events()
            for future in finished:
                position, error = running.pop(future), future.exception()
                cause = _cause(error)
                if isinstance(cause, Interrupted):
                    continue
                if cause is None:
                    outcome.results[position] = future.result()
                    listen(position, "done", "")
                    continue
                reason = f"{type(cause).__name__}: {cause}"
                if tried[position] < attempts and not isinstance(cause, InputError):
                    waiting.append(position)
                    listen(position, "again", reason)
                else:
                    outcome.errors[position] = cause
                    listen(position, "failed", reason)
        pass_on_events()
    finally:
        stop_file.touch()
        engine.close()
        with suppress(OSError):
            stop_file.unlink()
    if len(outcome.results) + len(outcome.errors) < len(jobs) and not (stop_on_failure and outcome.errors):
        raise Interrupted(f"stopped with {len(outcome.results)} of {len(jobs)} runs finished")
    return outcome


def work(
    job: SchedulableJob,
    position: int,
    stop_file: Path,
    environment: dict[str, str],
    events: EventQueue | None = None,
    wait_for_locks: bool = True,
) -> Any:
    """Run one job in a worker: with one thread, and an eye on the stop file."""
    import torch

    from engram.methods import load_plugins

    torch.set_num_threads(1)
    os.environ.update(environment)
    load_plugins()
    looked, stop = 0.0, False

    def should_stop() -> bool:
        nonlocal looked, stop
        if not stop and time.monotonic() - looked > LOOK_EVERY:
            looked, stop = time.monotonic(), stop_file.exists()
        return stop

    def on_event(event: Event) -> None:
        if events is not None:
            events.put((position, event))

    while not should_stop():
        try:
            return job.run(should_stop, on_event)
        except BusyError:
            if not wait_for_locks:
                raise
            time.sleep(WAIT_FOR_LOCK)
    raise Interrupted("stopped before it began")


def _cause(error: BaseException | None) -> BaseException | None:
    """Return what a job itself raised, from under what an engine wraps it in."""
    return getattr(error, "cause", None) or error
