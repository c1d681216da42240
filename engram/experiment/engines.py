"""Engines run jobs: in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.managers import SyncManager
from queue import Empty
from typing import Any

from engram.base.errors import InputError
from engram.experiment.events import Event
from engram.experiment.jobs import cores, interrupts_held_back, leave_with_parent
from engram.experiment.scheduler import EventQueue


class LocalEngine:
    """Runs jobs in processes of this machine.

    Each worker is a pool with a single process, so only one job fails if a process dies.

    Args:
        workers: number of processes; if not given, the number of cores available.
    """

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise InputError(f"workers is {workers}: give at least 1")
        self.workers = workers or cores()
        self._pools: list[ProcessPoolExecutor | None] = [None] * self.workers
        self._manager: SyncManager | None = None
        self._jobs: list[Future[Any] | None] = [None] * self.workers

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a call in an idle worker and return its future. There must be an idle worker."""
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
        """Return the pool of a worker; make it if there is none."""
        context = multiprocessing.get_context("spawn")
        pool = self._pools[index] or ProcessPoolExecutor(1, mp_context=context, initializer=leave_with_parent)
        self._pools[index] = pool
        return pool

    def event_queue(self) -> EventQueue:
        """Return a queue that jobs of this engine can put events into."""
        manager = self._manager = SyncManager(ctx=multiprocessing.get_context("spawn"))
        with interrupts_held_back():
            manager.start(leave_with_parent)
        return _ManagedQueue(manager.Queue())

    def close(self) -> None:
        """Wait for the running calls and end all processes."""
        for pool in self._pools:
            if pool is not None:
                pool.shutdown(cancel_futures=True)
        if self._manager is not None:
            self._manager.shutdown()


class _ManagedQueue:
    """A queue that is shared by processes of this machine."""

    def __init__(self, queue: Any) -> None:
        self.queue = queue

    def put(self, item: tuple[int, Event]) -> None:
        self.queue.put(item)

    def drain(self) -> list[tuple[int, Event]]:
        found = []
        with suppress(Empty):
            while True:
                found.append(self.queue.get_nowait())
        return found


class RayEngine:
    """Runs jobs on a Ray cluster, one CPU per job. If a machine is lost, `run_jobs` starts its jobs again.

    Args:
        address: address of the cluster, as `ray.init` takes it; "local" starts a new one on this machine.
    """

    def __init__(self, address: str = "local") -> None:
        try:
            import ray
        except ImportError as error:
            raise InputError("Ray is not installed: install it with `pip install ray`") from error
        self._ray = ray
        self._ours = not ray.is_initialized()
        if self._ours:
            with _signals_kept():
                ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        self._remote = ray.remote(num_cpus=1, max_retries=0)(_call)

    @property
    def workers(self) -> int:
        """The number of CPUs that the cluster has now."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))  # type: ignore[no-untyped-call]

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a call on the cluster and return its future."""
        future: Future[Any] = self._remote.remote(work, arguments).future()
        return future

    def event_queue(self) -> None:
        """Return None: events are not passed on from a cluster."""

    def close(self) -> None:
        """Shut Ray down, unless it was already in use before this engine was made."""
        if self._ours:
            self._ray.shutdown()


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Restore the handler of SIGTERM afterwards. Ray installs its own, which ends the process at once."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGTERM, before)


def _call(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return work(*arguments)
