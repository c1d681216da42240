"""Plain text output to the terminal. What files and networks say is shown as text and never obeyed."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from engram.base.escaping import for_terminal


class _PlainConsole(Console):
    """A console that escapes every text it shows, whatever table or line it is part of."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable. Those that rich itself made to move the cursor stay as they are."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else for_terminal(text), style, control)


class _Output:
    """The standard output. If its reader is gone, a closed terminal or pipe, the rest is dropped: a run goes on."""

    def write(self, text: str) -> int:
        try:
            return _standard_output().write(text)
        except OSError as error:
            _drop_output(error)
            return len(text)

    def flush(self) -> None:
        try:
            _standard_output().flush()
        except OSError as error:
            _drop_output(error)

    def __getattr__(self, name: str) -> object:
        if name == _PROXIED:
            raise AttributeError(name)
        return getattr(_standard_output(), name)


_PROXIED = "rich_proxied_file"
"""Where rich keeps the standard output while a progress bar stands in for it."""


def _standard_output() -> TextIO:
    found: TextIO = getattr(sys.stdout, _PROXIED, sys.stdout)
    return found


def _drop_output(error: OSError) -> None:
    """Send the standard output nowhere from now on if its reader is gone; other errors are raised."""
    if error.errno not in (errno.EPIPE, errno.EIO):
        raise error
    with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), _standard_output().fileno())


def plain_console(quiet: bool = False) -> Console:
    """Return a console that prints text as it is: brackets are not markup, and numbers are not colored."""
    return _PlainConsole(markup=False, highlight=False, quiet=quiet, file=_Output())  # type: ignore[arg-type]


def print_error(message: str) -> None:
    """Print one line about an error to the standard error output, if anybody reads it."""
    with suppress(OSError):
        print(for_terminal(message), file=sys.stderr)


class _EscapingFormatter(logging.Formatter):
    """Formats a warning as its message, with everything escaped that a terminal may obey."""

    def format(self, record: logging.LogRecord) -> str:
        return for_terminal(super().format(record))


def show_warnings() -> None:
    """Print warnings of this package to the standard error output, unless the program has set up logging itself."""
    handler = logging.StreamHandler()
    handler.setFormatter(_EscapingFormatter("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
