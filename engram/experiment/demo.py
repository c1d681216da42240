"""The demonstration: what `make run` learns, and why it is set up so.

16 px, a net of width 12 and a θ of width 32 fit nine runs into about two minutes on two cores. A memory of ten images
is one a class. A task has some 29 batches, far fewer than the paper's 500, so the queue is 16 (ready at 8) and τ = 2:
about 14 rounds a task; and new classes count as a new task after 10 batches already. Everything else, the summaries'
learning rate included, is the paper's default.
"""

from __future__ import annotations

from engram.experiment.config import RunConfig
from engram.methods import find

METHODS = ("scr", "scr+dynamic", "scr+ssd")


def demo_config(method: str, seed: int) -> RunConfig:
    parts = find(method)
    settings = {"net": {"width": 12}}
    if parts.summarize:
        settings |= {"theta": {"width": 32}, "summarize": {"queue": 16, "ready": 8, "interval": 2}}
    return RunConfig(
        method=method,
        dataset="digits",
        stream="strict",
        seed=seed,
        memory_size=10,
        slots_per_class=1,
        boundary_gap=10,
        keep_originals="claims" in parts.policy.provides,
        settings=settings,
    )
