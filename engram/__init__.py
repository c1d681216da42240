"""engram: keep learning from a stream seen once, with a memory of a few hundred kilobytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engram.checkpoint import CheckpointError
    from engram.errors import InputError, NonFiniteLossError, NotReadyError
    from engram.learner import Learner
    from engram.memory import ExportedMemory
    from engram.streams import DataError
    from engram.summary_memory import SummaryMemory

__version__ = "0.1.0"
__all__ = [
    "CheckpointError",
    "DataError",
    "ExportedMemory",
    "InputError",
    "Learner",
    "NonFiniteLossError",
    "NotReadyError",
    "SummaryMemory",
    "__version__",
]

_HOMES = {
    "CheckpointError": "engram.checkpoint",
    "DataError": "engram.streams",
    "ExportedMemory": "engram.memory",
    "InputError": "engram.errors",
    "Learner": "engram.learner",
    "NonFiniteLossError": "engram.errors",
    "NotReadyError": "engram.errors",
    "SummaryMemory": "engram.summary_memory",
}


def __getattr__(name: str) -> Any:
    """Import torch only when something that needs it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'engram' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
