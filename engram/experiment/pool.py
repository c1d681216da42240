"""Several runs over the cores of this machine, one thread each."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any

import torch

from engram.experiment.config import RunConfig
from engram.experiment.events import Event
from engram.experiment.every import EVERY_MINUTE, Every
from engram.experiment.run import Interrupted, run


@dataclass(frozen=True)
class Job:
    """One run and where it goes."""

    config: RunConfig
    out: Path

    def run(self, should_stop: Callable[[], bool]) -> dict[str, Any]:
        """Begin, go on, or only read what is finished."""
        return run(self.config, self.out, resume=True, should_stop=should_stop)


def run_all(
    jobs: Sequence[Job],
    *,
    workers: int | None = None,
    resume: bool = False,
    checkpoint_every: Every = EVERY_MINUTE,
    on_event: Callable[[int, Event], None] = lambda job, event: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[dict[str, Any]]:
    """Run all jobs and return their results in order; `on_event` hears of job number and event.

    Each job runs in a process with one thread: on a few cores that beats several threads one after the other.
    When `should_stop` turns true, every job saves and `Interrupted` is raised; when one fails, the others save too and
    its error is raised.
    """
    context = multiprocessing.get_context("spawn")
    count = min(workers or cores(), len(jobs))
    with ExitStack() as stack:
        with interrupts_held_back():
            manager = stack.enter_context(context.Manager())
            events, stop = manager.Queue(), manager.Event()
            pool = ProcessPoolExecutor(count, mp_context=context, initializer=torch.set_num_threads, initargs=(1,))
            stack.enter_context(pool)
            stack.callback(stop.set)
            futures = [
                pool.submit(_work, index, job, resume, checkpoint_every, events, stop) for index, job in enumerate(jobs)
            ]
        while not all(future.done() for future in futures):
            if should_stop() or any(_failed(future) for future in futures):
                stop.set()
            _pass_on(events, on_event)
        _pass_on(events, on_event)
        for future in sorted(futures, key=lambda future: isinstance(future.exception(), Interrupted)):
            future.result()
        return [future.result() for future in futures]


def cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Processes started inside never get Ctrl-C or SIGTERM, which may go to the whole group; this one gets them
    afterwards and asks them to stop."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _failed(future: Future[dict[str, Any]]) -> bool:
    return future.done() and future.exception() is not None


def _pass_on(events: Any, on_event: Callable[[int, Event], None]) -> None:
    try:
        on_event(*events.get(timeout=0.1))
        while True:
            on_event(*events.get_nowait())
    except Empty:
        return


def _work(index: int, job: Job, resume: bool, checkpoint_every: Every, events: Any, stop: Any) -> dict[str, Any]:
    if stop.is_set():
        raise Interrupted("stopped before it began")
    return run(
        job.config,
        job.out,
        resume=resume,
        checkpoint_every=checkpoint_every,
        on_event=lambda event: events.put((index, event)),
        should_stop=stop.is_set,
    )
