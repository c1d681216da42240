"""Small learners that tests share, and the program in a process of its own."""

import os
import subprocess
import sys
from typing import Any

from engram import Learner
from engram.testing import feed, fingerprint, toy_images, toy_stream

__all__ = [
    "SMALL",
    "SMALL_THETA",
    "feed",
    "fingerprint",
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
