"""Several runs over the cores of this machine, one thread each."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from multiprocessing.managers import SyncManager
from queue import Empty
from typing import Any

import torch

from engram.experiment.engines import LocalEngine
from engram.experiment.events import Event
from engram.experiment.every import EVERY_MINUTE, Every
from engram.experiment.jobs import Job, cores, interrupts_held_back, leave_with_parent
from engram.experiment.run import Interrupted, run
from engram.experiment.sweep import Result


def run_all(
    jobs: Sequence[Job],
    *,
    workers: int | None = None,
    resume: bool = False,
    checkpoint_every: Every = EVERY_MINUTE,
    on_event: Callable[[int, Event], None] = lambda job, event: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[Result]:
    """Run all jobs and return their results in order; `on_event` hears of job number and event.

    Each job runs in a process with one thread: on a few cores that beats several threads one after the other.
    When `should_stop` turns true, every job saves and `Interrupted` is raised; when one fails, the others save too and
    its error is raised.
    """
    with ExitStack() as stack:
        manager = SyncManager(ctx=multiprocessing.get_context("spawn"))
        with interrupts_held_back():
            manager.start(leave_with_parent)
        stack.callback(manager.shutdown)
        events, stop = manager.Queue(), manager.Event()
        engine = LocalEngine(min(workers or cores(), len(jobs)))
        stack.callback(engine.close)
        stack.callback(stop.set)
        futures: list[Future[Result]] = []
        while len(futures) < len(jobs) or not all(future.done() for future in futures):
            if should_stop() or any(_failed(future) for future in futures):
                stop.set()
            while len(futures) < len(jobs) and sum(not future.done() for future in futures) < engine.workers:
                index = len(futures)
                futures.append(engine.submit(_work, index, jobs[index], resume, checkpoint_every, events, stop))
            _pass_on(events, on_event)
        _pass_on(events, on_event)
        for future in sorted(futures, key=lambda future: isinstance(future.exception(), Interrupted)):
            future.result()
        return [future.result() for future in futures]


def _failed(future: Future[Result]) -> bool:
    return future.done() and future.exception() is not None


def _pass_on(events: Any, on_event: Callable[[int, Event], None]) -> None:
    try:
        on_event(*events.get(timeout=0.1))
        while True:
            on_event(*events.get_nowait())
    except Empty:
        return


def _work(index: int, job: Job, resume: bool, checkpoint_every: Every, events: Any, stop: Any) -> Result:
    torch.set_num_threads(1)
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
