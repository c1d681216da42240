"""How often a run saves a checkpoint: after some seconds, or after some batches."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from engram.base.errors import InputError


@dataclass(frozen=True)
class SaveInterval:
    """The time between two checkpoints. Only one of the two is given.

    Args:
        seconds: number of seconds between two checkpoints.
        batches: number of batches between two checkpoints.
    """

    seconds: float | None = None
    batches: int | None = None

    @staticmethod
    def parse(text: str) -> SaveInterval:
        """Return the interval that a text stands for: "60" and "60s" are seconds, "500b" and "500 batches" batches."""
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|seconds?|b|batch(?:es)?)?\s*", text)
        if not match or (float(match[1]) == 0):
            raise InputError(f"checkpoint_every is {text!r}: give seconds (60, 0.5s) or batches (500b)")
        if (match[2] or "s").startswith("s"):
            return SaveInterval(seconds=float(match[1]))
        if not match[1].isdecimal():
            raise InputError(f"checkpoint_every is {text!r}: give a whole number of batches")
        return SaveInterval(batches=int(match[1]))


EVERY_MINUTE = SaveInterval(seconds=60.0)


class SaveTimer:
    """Tells when the next checkpoint is due.

    Args:
        every: the interval between checkpoints.
    """

    def __init__(self, every: SaveInterval) -> None:
        self.every = every
        self.reset()

    def reset(self) -> None:
        """Start the interval again."""
        self.since, self.batches = time.perf_counter(), 0

    def after_batch(self) -> bool:
        """Count a batch and return whether a checkpoint is due; if so, the interval starts again."""
        self.batches += 1
        if self.every.batches is not None:
            due = self.batches >= self.every.batches
        else:
            due = time.perf_counter() - self.since > (self.every.seconds or 0)
        if due:
            self.reset()
        return due
