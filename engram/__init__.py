"""engram: keep learning from a stream seen once, with a memory of a few hundred kilobytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engram.base.errors import InputError, NonFiniteLossError, NonFiniteStateError, NotReadyError
    from engram.deployment import Predictor
    from engram.evaluation import Evaluation, Interval, Prequential, evaluate, score_images
    from engram.experiment.config import RunConfig
    from engram.experiment.result import RunResult
    from engram.experiment.run import run
    from engram.learner import Learner
    from engram.memory import ExportedMemory
    from engram.methods import Method
    from engram.persistence.checkpoint import CheckpointError
    from engram.recommending import Recommendation, recommend
    from engram.streams import DataError, class_incremental, from_arrays, load_dataset, register_dataset
    from engram.summary_memory import SummaryMemory
    from engram.testing import check_method

__version__ = "0.2.0"
__all__ = [
    "CheckpointError",
    "DataError",
    "Evaluation",
    "ExportedMemory",
    "InputError",
    "Interval",
    "Learner",
    "Method",
    "NonFiniteLossError",
    "NonFiniteStateError",
    "NotReadyError",
    "Predictor",
    "Prequential",
    "Recommendation",
    "RunConfig",
    "RunResult",
    "SummaryMemory",
    "__version__",
    "check_method",
    "class_incremental",
    "evaluate",
    "from_arrays",
    "load_dataset",
    "recommend",
    "register_dataset",
    "run",
    "score_images",
]

_HOMES = {
    "CheckpointError": "engram.persistence.checkpoint",
    "DataError": "engram.streams",
    "Evaluation": "engram.evaluation",
    "ExportedMemory": "engram.memory",
    "InputError": "engram.base.errors",
    "Interval": "engram.evaluation",
    "Learner": "engram.learner",
    "Method": "engram.methods",
    "NonFiniteLossError": "engram.base.errors",
    "NonFiniteStateError": "engram.base.errors",
    "NotReadyError": "engram.base.errors",
    "Predictor": "engram.deployment",
    "Prequential": "engram.evaluation",
    "Recommendation": "engram.recommending",
    "RunConfig": "engram.experiment.config",
    "RunResult": "engram.experiment.result",
    "SummaryMemory": "engram.summary_memory",
    "check_method": "engram.testing",
    "class_incremental": "engram.streams",
    "evaluate": "engram.evaluation",
    "from_arrays": "engram.streams",
    "load_dataset": "engram.streams",
    "recommend": "engram.recommending",
    "register_dataset": "engram.streams",
    "run": "engram.experiment.run",
    "score_images": "engram.evaluation",
}


def __getattr__(name: str) -> Any:
    """Import torch only when something that needs it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'engram' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
