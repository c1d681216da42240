"""Ctrl-C, SIGTERM and SIGHUP as requests to stop: the program finishes the current step, saves and exits."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from engram.experiment.jobs import STOP_SIGNALS


class StopRequest:
    """A request to stop. Calling it returns whether the program was asked to stop; `signal` is the signal's number."""

    def __init__(self) -> None:
        self.signal = 0

    def __call__(self) -> bool:
        return self.signal > 0

    @property
    def exit_code(self) -> int:
        """The exit code that shells expect: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP."""
        return 128 + self.signal


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Record signals in the returned request instead of stopping; a second signal ends the program at once.

    A signal that is ignored stays so: `nohup` protects from SIGHUP in this way.
    """
    request = StopRequest()

    def note(number: int, frame: Any) -> None:
        if request():
            end_now(number)
        request.signal = number

    heard = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in heard}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_now(number: int) -> None:
    """End the program without finishing anything. What was saved last is there, as after a kill."""
    with suppress(OSError, ValueError):
        if sys.stdout.isatty():
            os.write(sys.stdout.fileno(), b"\x1b[?25h\n")  # the cursor, which progress bars hide
        os.write(sys.stderr.fileno(), b"engram: ended at once; what was saved last is there\n")
    os._exit(128 + number)
