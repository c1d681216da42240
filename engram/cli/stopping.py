"""Ctrl-C and SIGTERM as requests to stop: the program finishes the current step, saves and exits."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class StopRequest:
    """A request to stop. Calling it returns whether the program was asked to stop; `signal` is the signal's number."""

    def __init__(self) -> None:
        self.signal = 0

    def __call__(self) -> bool:
        return self.signal > 0

    @property
    def exit_code(self) -> int:
        """The exit code that shells expect: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + self.signal


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Record Ctrl-C and SIGTERM in the returned request instead of stopping; a second signal stops at once."""
    request = StopRequest()

    def note(number: int, frame: Any) -> None:
        if request():
            raise KeyboardInterrupt
        request.signal = number

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
