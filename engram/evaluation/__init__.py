"""How well a learner does: accuracy matrices, forgetting, intervals, prequential accuracy."""

from engram.evaluation.evaluation import Evaluation, StreamLearner, evaluate, score_tasks
from engram.evaluation.images import Answering, ImageScores, score_images
from engram.evaluation.metrics import METRICS, Interval
from engram.evaluation.prequential import Prequential

__all__ = [
    "METRICS",
    "Answering",
    "Evaluation",
    "ImageScores",
    "Interval",
    "Prequential",
    "StreamLearner",
    "evaluate",
    "score_images",
    "score_tasks",
]
