"""Load what answers: a learner, or what was saved of it for inference only."""

from __future__ import annotations

from pathlib import Path

from engram.deployment import Predictor, holds_predictor
from engram.learner import Learner
from engram.persistence.checkpoint import CheckpointError, holds_checkpoint


def open_to_answer(path: Path) -> Learner | Predictor:
    """Return what is saved in a folder, of either kind."""
    if not any(holds_checkpoint(each) for each in (path, path / "checkpoint")):
        raise CheckpointError(f"{path} holds no learner: name the folder that `engram learn --into` or a run wrote")
    return Predictor.load(path) if holds_predictor(path) else Learner.load(path)
