"""How a learner answers."""

from engram.classifiers.nearest_mean import NearestClassMean
from engram.classifiers.softmax import Softmax

__all__ = ["NearestClassMean", "Softmax"]
