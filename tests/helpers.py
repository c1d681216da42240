"""Small learners that tests share, and the program in a process of its own."""

import os
import subprocess
import sys
from typing import Any

import torch

from engram import Evaluation, Learner, RunConfig, RunResult, __version__
from engram.base.batch import Batch
from engram.memory import Store
from engram.testing import feed, fingerprint, toy_images, toy_stream

__all__ = [
    "SMALL",
    "SMALL_THETA",
    "feed",
    "fingerprint",
    "made_result",
    "put_image",
    "small_learner",
    "start_engram",
    "toy_images",
    "toy_stream",
]

SMALL: dict[str, Any] = {
    "net": {"width": 8},
    "scheme": {"replay": 8},
}
SMALL_THETA: dict[str, Any] = {
    "theta": {"width": 8},
    "summarize": {"queue": 8, "ready": 4, "interval": 3},
}


def small_learner(method: str = "scr+ssd", **changes: Any) -> Learner:
    """A learner that takes milliseconds a batch."""
    settings = SMALL | (SMALL_THETA if method.endswith("ssd") else {}) | {"memory_size": 8} | changes
    return Learner(method, **settings)


def put_image(memory: Store, slot: int, image: torch.Tensor, label: int, priority: float = 1.0) -> int | None:
    """Put one image into a memory."""
    return memory.put(slot, Batch(image[None], torch.tensor([label])), 0, priority)


def made_result(config: RunConfig, accuracy: float, **changes: Any) -> RunResult:
    """A result made by hand: this end accuracy, and half as much forgetting over all tasks."""
    facts: dict[str, Any] = {
        "readings": {"net": Evaluation([[2 * accuracy, None], [accuracy, accuracy]])},
        "classes": 10,
        "images_seen": 100,
        "memory_images": 10,
        "summarize_rounds": 0,
        "seconds": {"train": 8.0, "total": 10.0},
        "footprint": {"images": 10_240, "total": 99},
        "prequential": None,
        "version": __version__,
    }
    return RunResult(config, **facts | changes)


def start_engram(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """`engram ARGUMENTS` with one thread; its output can be read."""
    return subprocess.Popen(
        [sys.executable, "-m", "engram", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        **options,
    )
