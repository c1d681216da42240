"""Plain text output to the terminal."""

from __future__ import annotations

from rich.console import Console


def plain_console(quiet: bool = False) -> Console:
    """Return a console that prints text as it is: brackets are not markup, and numbers are not colored."""
    return Console(markup=False, highlight=False, quiet=quiet)
