"""The terminal: what is printed there is plain text, however a path or the text of an error reads."""

from __future__ import annotations

from rich.console import Console


def plain_console(quiet: bool = False) -> Console:
    """Neither takes brackets for markup nor colours what looks like a number."""
    return Console(markup=False, highlight=False, quiet=quiet)
