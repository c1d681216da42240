"""Who may teach a saved learner: one process at a time, and only its server once there is a journal."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from engram.persistence.files import make_folder
from engram.persistence.lock import exclusive_lock
from engram.persistence.state import Tree

TEACHING = "learning"
"""Name of the folder in a saved learner whose lock lets only one process teach it."""


def teaching_lock(place: Path) -> AbstractContextManager[None]:
    """Return a context in which no other process may teach the learner saved at a place."""
    make_folder(place / TEACHING)
    return exclusive_lock(place / TEACHING)


def saved_by_server(extra: Tree) -> dict[str, Any]:
    """Return what a server saved with a learner, from the extra of its checkpoint; nothing if it was never served."""
    found = extra.get("served") if isinstance(extra, dict) and extra.keys() == {"served", "before"} else None
    return found if isinstance(found, dict) else {}
