"""A run as something to be done anywhere, and what whoever starts processes for it needs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    afterwards and asks them to stop."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
