"""Help with names that are not known."""

from __future__ import annotations

import difflib


def suggest(name: str, known: list[str]) -> str:
    """The end of an error message about an unknown name."""
    close = difflib.get_close_matches(name, known, n=1)
    return f": did you mean {close[0]!r}?" if close else f": choose one of {', '.join(sorted(known))}"
