"""Our memory as a storage policy of Avalanche."""

from engram.avalanche.importing import without_missing_operators

with without_missing_operators():
    from engram.avalanche.storage import SummaryBuffer, summary_replay

__all__ = ["SummaryBuffer", "summary_replay"]
