"""Where the jobs of a sweep run: in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from engram.core import InputError
from engram.experiment.pool import interrupts_held_back
from engram.experiment.sweep import Result


class LocalEngine:
    """One process a core. A process that dies takes the pool with it: the next job gets a new one."""

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise InputError(f"workers is {workers}: need at least 1")
        self.workers = workers or self.cores()
        self._pool = self._new_pool()

    @staticmethod
    def cores() -> int:
        return os.cpu_count() or 1

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.workers, mp_context=multiprocessing.get_context("spawn"))

    def submit(self, work: Callable[..., Result], *arguments: Any) -> Future[Result]:
        with interrupts_held_back():
            try:
                return self._pool.submit(work, *arguments)
            except BrokenProcessPool:
                self._pool.shutdown(wait=False)
                self._pool = self._new_pool()
                return self._pool.submit(work, *arguments)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class RayEngine:
    """A Ray cluster, each job one of its CPUs. A job whose machine is lost is started again by the sweep."""

    def __init__(self, address: str = "local") -> None:
        try:
            import ray
        except ImportError as error:
            raise InputError("Ray is not installed: pip install 'engram[ray]'") from error
        self._ray = ray
        self._ours = not ray.is_initialized()
        if self._ours:
            ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        self.workers = int(ray.cluster_resources().get("CPU", 1))  # type: ignore[no-untyped-call]
        self._remote = ray.remote(num_cpus=1, max_retries=0)(_call)

    def submit(self, work: Callable[..., Result], *arguments: Any) -> Future[Result]:
        future: Future[Result] = self._remote.remote(work, arguments).future()
        return future

    def close(self) -> None:
        if self._ours:
            self._ray.shutdown()


def _call(work: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
    return work(*arguments)
