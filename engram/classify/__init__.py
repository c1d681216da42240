"""How a learner answers."""

from engram.classify.nearest_mean import NearestClassMean

__all__ = ["NearestClassMean"]
