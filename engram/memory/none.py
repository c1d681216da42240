"""No memory at all."""

from __future__ import annotations

from engram.core import Batch, Context, Policy, StoreReport


class NoMemory(Policy):
    """Stores nothing: for schemes that do not replay."""

    def store(self, stream: Batch, ctx: Context) -> StoreReport:
        return StoreReport()
