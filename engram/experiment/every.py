"""How often a run saves: by time, or by batches."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from engram.errors import InputError


@dataclass(frozen=True)
class Every:
    """So many seconds, or so many batches, between saves."""

    seconds: float | None = None
    batches: int | None = None

    @staticmethod
    def parse(text: str) -> Every:
        """Of "60" or "60s" (seconds), or "500b" or "500 batches"."""
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|seconds?|b|batch(?:es)?)?\s*", text)
        if not match or (float(match[1]) == 0):
            raise InputError(f"checkpoint_every is {text!r}: give seconds (60, 0.5s) or batches (500b)")
        if (match[2] or "s").startswith("s"):
            return Every(seconds=float(match[1]))
        if not match[1].isdecimal():
            raise InputError(f"checkpoint_every is {text!r}: batches are whole")
        return Every(batches=int(match[1]))


EVERY_MINUTE = Every(seconds=60.0)


class Due:
    """Says when the next save is due."""

    def __init__(self, every: Every) -> None:
        self.every = every
        self.reset()

    def reset(self) -> None:
        self.since, self.batches = time.perf_counter(), 0

    def after_batch(self) -> bool:
        """Whether it is, one batch later; then it starts anew."""
        self.batches += 1
        if self.every.batches is not None:
            due = self.batches >= self.every.batches
        else:
            due = time.perf_counter() - self.since > (self.every.seconds or 0)
        if due:
            self.reset()
        return due
