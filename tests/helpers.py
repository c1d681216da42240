"""Small learners and streams that tests share."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from engram import Learner

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


def toy_images(labels: list[int], seed: int) -> np.ndarray:
    """Noise around one fixed pattern a class, 1×16×16, uint8."""
    patterns = np.random.default_rng(123).integers(0, 200, (64, 1, 16, 16))
    noise = np.random.default_rng(seed).integers(0, 56, (len(labels), 1, 16, 16))
    return (patterns[labels] + noise).astype(np.uint8)


def toy_stream(tasks: int, batches: int, classes: int = 2, batch: int = 4) -> Iterator[tuple[np.ndarray, list[int]]]:
    """`batches` batches a task, each class of the task in turn."""
    for task in range(tasks):
        for index in range(batches):
            labels = [task * classes + (index * batch + i) % classes for i in range(batch)]
            yield toy_images(labels, seed=1000 * task + index), labels


def feed(learner: Learner, stream: Any) -> Learner:
    for x, y in stream:
        learner.observe(x, y)
    return learner
