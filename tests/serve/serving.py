"""Small learners that are served: inside this process, or in one of their own."""

from __future__ import annotations

import io
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from engram import Learner
from engram.serve.batches import LabeledBatch
from engram.serve.limits import resolve_limits
from engram.serve.service import Service, ServiceSettings
from tests.helpers import small_learner, start_engram, toy_images

SECRET = "correct-horse-battery-staple"
LIMITS = resolve_limits({})


def batch_of(index: int, size: int = 4) -> tuple[Any, list[str]]:
    """Return the images and labels of the batch with a number; four classes come in turn."""
    numbers = [(index + i) % 4 for i in range(size)]
    return toy_images(numbers, index), [f"class {number}" for number in numbers]


def labeled(index: int, size: int = 4) -> LabeledBatch:
    return LabeledBatch(*batch_of(index, size))


def some_learner(folder: Path, taught: int = 0, method: str = "er", **options: Any) -> Path:
    """Save a small learner that was taught so many batches, and return its folder."""
    learner = small_learner(method, threads=1, **options)
    for index in range(taught):
        learner.observe(*batch_of(index))
    learner.save(folder)
    return folder


def settings_with(checkpoint_every: float = 3600.0, **limits: Any) -> ServiceSettings:
    return ServiceSettings(resolve_limits(limits), side=16, threads=1, checkpoint_every=checkpoint_every)


@contextmanager
def service(folder: Path, checkpoint_every: float = 3600.0, **limits: Any) -> Iterator[Service]:
    """Serve a learner without a network."""
    opened = Service(folder, settings_with(checkpoint_every, **limits))
    try:
        yield opened
    finally:
        opened.close()


def crash(killed: Service) -> None:
    """Leave a service as a kill would: nothing is saved, and the lock is free."""
    killed.writer.checkpoint = lambda: None  # type: ignore[method-assign]
    killed.close()


def wait_for(opened: Service, position: int) -> None:
    """Wait until predictions come from a learner that has learned so many batches, or learning has stopped."""
    deadline = time.monotonic() + 30
    while not opened.publication.wait_for(position, 0.1):
        assert opened.writer.failure is None
        assert time.monotonic() < deadline, f"batch {position} was not learned: {opened.status()}"


@contextmanager
def web_client(*folders: Path, token: Any = None, **limits: Any) -> Iterator[Any]:
    """Return a client of an application that serves learners by the names of their folders, in this process."""
    from starlette.testclient import TestClient

    from engram.serve.application import create_application
    from engram.serve.server import open_services

    settings = settings_with(**limits)
    named = {folder.name: folder for folder in folders}
    app = create_application(lambda: open_services(named, settings), settings.limits, token)
    with TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        yield client


@contextmanager
def server(folder: Path, *options: str, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve a learner in a process of its own; give the process and the address. It is killed at the end."""
    process = start_engram("serve", str(folder), "--port", str(port), "--threads", "1", *options)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://[^/]+", line)
        if found is None:
            process.kill()
            raise AssertionError(f"the server did not start: {line}{process.communicate()[1]}")
        yield process, found[0]
    finally:
        process.kill()
        process.communicate()


def npz(**arrays: Any) -> bytes:
    written = io.BytesIO()
    np.savez(written, **arrays)
    return written.getvalue()


def undisturbed(folder: Path, batches: list[LabeledBatch]) -> Learner:
    """Return the learner in a folder after it was taught these batches directly."""
    learner = Learner.load(folder)
    for batch in batches:
        learner.observe(batch.images, batch.labels)
    return learner
