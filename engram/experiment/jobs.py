"""Runs as jobs that can be executed by any process, and helpers to start processes for them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path

from engram.experiment.config import RunConfig
from engram.experiment.events import Event
from engram.experiment.result import RunResult
from engram.experiment.run import run
from engram.experiment.save_interval import EVERY_MINUTE, SaveInterval

STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)
)
"""Signals of this system that ask to stop: Ctrl-C, a request to end, and a terminal that was closed."""


@dataclass(frozen=True)
class Job:
    """One run that can be executed by any process.

    Args:
        config: configuration of the run.
        out: folder of the run.
        resume: continue the run in the folder, if there is one; otherwise the folder must be empty.
        checkpoint_every: how often to save a checkpoint.
    """

    config: RunConfig
    out: Path
    resume: bool = True
    checkpoint_every: SaveInterval = EVERY_MINUTE

    def run(
        self, should_stop: Callable[[], bool] = lambda: False, on_event: Callable[[Event], None] = lambda event: None
    ) -> RunResult:
        """Start or continue the run, or read the result if it is finished."""
        return run(
            self.config,
            self.out,
            resume=self.resume,
            checkpoint_every=self.checkpoint_every,
            on_event=on_event,
            should_stop=should_stop,
        )


def cores() -> int:
    """Return the number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Block the signals that ask to stop, so that processes started inside this context never receive them.

    These signals may go to the whole process group. This process receives them after the context, and then asks the
    others to stop. Python's resource tracker would unblock the signals when it starts, together with the first process;
    so it is started before. Where signals cannot be blocked, nothing is done.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_with_parent() -> None:
    """End this process when its parent process ends. To be called in processes that were started for jobs.

    If the parent is killed, the last checkpoints of the jobs remain. Without this, the processes of a pool would wait
    for work forever, and they ignore signals.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None, "this process was not started by multiprocessing"

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
