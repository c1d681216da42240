"""Plain text output to the terminal. What files and networks say is shown as text and never obeyed."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from engram.base.escaping import for_terminal


class _PlainConsole(Console):
    """A console that escapes every text it shows, whatever table or line it is part of."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable. Those that rich itself made to move the cursor stay as they are."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else for_terminal(text), style, control)


def plain_console(quiet: bool = False) -> Console:
    """Return a console that prints text as it is: brackets are not markup, and numbers are not colored."""
    return _PlainConsole(markup=False, highlight=False, quiet=quiet)


def print_error(message: str) -> None:
    """Print one line about an error to the standard error output."""
    print(for_terminal(message), file=sys.stderr)
