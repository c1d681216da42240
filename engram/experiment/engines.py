"""Where the jobs of a sweep run: in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from engram.errors import InputError
from engram.experiment.jobs import cores, interrupts_held_back, leave_with_parent
from engram.experiment.sweep import Result


class LocalEngine:
    """Processes of this machine. Each worker is a pool of one, so that one that dies takes its own job along only."""

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise InputError(f"workers is {workers}: need at least 1")
        self.workers = workers or cores()
        self._pools: list[ProcessPoolExecutor | None] = [None] * self.workers
        self._jobs: list[Future[Result] | None] = [None] * self.workers

    def submit(self, work: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """To a worker that has nothing to do; there must be one."""
        free = next(index for index, job in enumerate(self._jobs) if job is None or job.done())
        with interrupts_held_back():
            try:
                future = self._pool(free).submit(work, *arguments)
            except BrokenProcessPool:
                self._pools[free] = None
                future = self._pool(free).submit(work, *arguments)
        self._jobs[free] = future
        return future

    def _pool(self, index: int) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        pool = self._pools[index] or ProcessPoolExecutor(1, mp_context=context, initializer=leave_with_parent)
        self._pools[index] = pool
        return pool

    def close(self) -> None:
        for pool in self._pools:
            if pool is not None:
                pool.shutdown(cancel_futures=True)


class RayEngine:
    """A Ray cluster, each job one of its CPUs. A job whose machine is lost is started again by the sweep."""

    def __init__(self, address: str = "local") -> None:
        try:
            import ray
        except ImportError as error:
            raise InputError("Ray is not installed: pip install ray") from error
        self._ray = ray
        self._ours = not ray.is_initialized()
        if self._ours:
            with _signals_kept():
                ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        self._remote = ray.remote(num_cpus=1, max_retries=0)(_call)

    @property
    def workers(self) -> int:
        """CPUs of the cluster as it is now."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))  # type: ignore[no-untyped-call]

    def submit(self, work: Callable[..., Result], *arguments: Any) -> Future[Result]:
        future: Future[Result] = self._remote.remote(work, arguments).future()
        return future

    def close(self) -> None:
        if self._ours:
            self._ray.shutdown()


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray answers SIGTERM by leaving at once; whoever was asked before answers it again."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGTERM, before)


def _call(work: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
    return work(*arguments)
