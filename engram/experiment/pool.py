"""Several runs over the cores of this machine, one thread each."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing.managers import SyncManager
from queue import Empty
from typing import Any

import torch

from engram.experiment.events import Event
from engram.experiment.every import EVERY_MINUTE, Every
from engram.experiment.jobs import Job, cores, interrupts_held_back, leave_with_parent
from engram.experiment.run import Interrupted, run


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
            manager = SyncManager(ctx=context)
            manager.start(leave_with_parent)
            stack.callback(manager.shutdown)
            events, stop = manager.Queue(), manager.Event()
            pool = stack.enter_context(ProcessPoolExecutor(count, mp_context=context, initializer=_begin))
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


def _begin() -> None:
    torch.set_num_threads(1)
    leave_with_parent()


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
