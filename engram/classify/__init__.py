"""How a learner answers."""

from engram.classify.nearest_mean import NearestClassMean
from engram.classify.softmax import Softmax

__all__ = ["NearestClassMean", "Softmax"]
