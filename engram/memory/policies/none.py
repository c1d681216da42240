"""No memory at all."""

from __future__ import annotations

from engram.base.batch import Batch
from engram.base.context import MemoryContext
from engram.base.interfaces import MemoryPolicy, StoreReport


class NoMemory(MemoryPolicy):
    """Stores nothing: for schemes that do not replay."""

    def store(self, stream: Batch, ctx: MemoryContext) -> StoreReport:
        return StoreReport()
