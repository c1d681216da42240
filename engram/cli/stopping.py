"""Ctrl-C and SIGTERM as a wish: the work in hand ends, is saved, and the program leaves."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Wish:
    """Whether, and by which signal, the program was asked to stop."""

    def __init__(self) -> None:
        self.signal = 0

    def __call__(self) -> bool:
        return self.signal > 0

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, 143 after SIGTERM, as shells expect."""
        return 128 + self.signal


@contextmanager
def stop_on_signal() -> Iterator[Wish]:
    """While inside, signals are only noted; a second one ends at once."""
    wish = Wish()

    def note(number: int, frame: Any) -> None:
        if wish():
            raise KeyboardInterrupt
        wish.signal = number

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
