"""Which memory images are replayed."""

from engram.retrieval.random import RandomRetrieval

__all__ = ["RandomRetrieval"]
