"""How well a learner does: accuracy matrices, forgetting, intervals, prequential accuracy."""

from engram.evaluation.evaluation import Evaluation, StreamLearner, evaluate, score_tasks
from engram.evaluation.metrics import METRICS, Interval
from engram.evaluation.prequential import Prequential

__all__ = ["METRICS", "Evaluation", "Interval", "Prequential", "StreamLearner", "evaluate", "score_tasks"]
