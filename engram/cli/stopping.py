"""Ctrl-C and SIGTERM as a wish: the work in hand ends, is saved, and the program leaves."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

INTERRUPTED = 130


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """While inside, signals only set what the yielded function tells; a second Ctrl-C ends at once."""
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
