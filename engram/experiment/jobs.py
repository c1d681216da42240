"""A run as something to be done anywhere, and what whoever starts processes for it needs."""

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
from typing import Any

from engram.experiment.config import RunConfig
from engram.experiment.run import run


@dataclass(frozen=True)
class Job:
    """One run and where it goes."""

    config: RunConfig
    out: Path

    def run(self, should_stop: Callable[[], bool]) -> dict[str, Any]:
        """Begin, go on, or only read what is finished."""
        return run(self.config, self.out, resume=True, should_stop=should_stop)


def cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Processes started inside never get Ctrl-C or SIGTERM, which may go to the whole group; this one gets them
    afterwards and asks them to stop. (Python's resource tracker, started with the first of them, would let the signals
    through again: it is started before.)"""
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_with_parent() -> None:
    """In a process started for jobs: should its starter be killed, it ends too, and the last checkpoints stand.

    A pool's own processes would wait for work for ever, deaf to signals.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None, "only for processes that multiprocessing started"

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
