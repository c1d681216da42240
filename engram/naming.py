"""Names of what is not known, and of classes."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def suggest(name: str, known: list[str]) -> str:
    """The end of an error message about an unknown name."""
    close = difflib.get_close_matches(name, known, n=1)
    return f": did you mean {close[0]!r}?" if close else f": choose one of {', '.join(sorted(known))}"


def class_name(label: int | str, names: Sequence[str]) -> str:
    """What a class is called: by `names`, if it is a number they reach."""
    return names[label] if isinstance(label, int) and 0 <= label < len(names) else str(label)
