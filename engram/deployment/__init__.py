"""What a learner is on a device that only answers: a small folder, an ONNX file or an exported program."""

from engram.deployment.exporting import export
from engram.deployment.predictor import Predictor, answering_from, holds_predictor

__all__ = ["Predictor", "answering_from", "export", "holds_predictor"]
