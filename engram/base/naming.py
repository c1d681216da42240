"""Names that are not known, and names of classes."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def suggest(name: str, known: Sequence[str]) -> str:
    """Return the end of an error message about an unknown name: the nearest known one, or all of them."""
    close = suggest_close(name, known)
    return f":{close[1:]}" if close else f": choose one of {', '.join(sorted(known))}"


def suggest_close(name: str, known: Sequence[str]) -> str:
    """Return "; did you mean ...?" for the nearest known name, or nothing if none is near."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def class_name(label: int | str, names: Sequence[str]) -> str:
    """Return the name of a class: an entry of `names` if the label is a number they reach, else the label."""
    return names[label] if isinstance(label, int) and 0 <= label < len(names) else str(label)
