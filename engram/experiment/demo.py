"""The configuration of the demonstration that `make run` starts.

With images of 16 px, a net of width 12 and a θ of width 32, nine runs take about two minutes on two cores. A memory of
ten images has one image per class. A task has about 29 batches, far fewer than the paper's 500. So the queue holds 16
images (ready at 8) and τ = 2, which makes about 14 rounds per task, and new classes count as a new task after only 10
batches. Everything else, including the learning rate of the summaries, is the paper's default.
"""

from __future__ import annotations

from engram.experiment.config import RunConfig
from engram.methods import find_method

METHODS = ("scr", "scr+dynamic", "scr+ssd")


def demo_config(method: str, seed: int) -> RunConfig:
    """Return the configuration of one run of the demonstration."""
    parts = find_method(method)
    settings: dict[str, dict[str, int]] = {"net": {"width": 12}}
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
