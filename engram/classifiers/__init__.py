"""How a learner answers."""

from engram.classifiers.from_scratch import FromScratch
from engram.classifiers.nearest_mean import NearestClassMean
from engram.classifiers.softmax import Softmax

__all__ = ["FromScratch", "NearestClassMean", "Softmax"]
