"""Which memory images are replayed."""

from engram.retrieval.aser import ShapleyRetrieval
from engram.retrieval.mgi import MaximalGradientInterference
from engram.retrieval.mir import MaximallyInterfered
from engram.retrieval.random import RandomRetrieval

__all__ = ["MaximalGradientInterference", "MaximallyInterfered", "RandomRetrieval", "ShapleyRetrieval"]
