"""Load what answers: a learner, or what was saved of it for inference only."""

from __future__ import annotations

from pathlib import Path

from engram.deployment import Predictor, holds_predictor
from engram.learner import Learner


def open_to_answer(path: Path) -> Learner | Predictor:
    """Return what is saved in a folder, of either kind."""
    return Predictor.load(path) if holds_predictor(path) else Learner.load(path)
