"""The configuration of the demonstration that `make run` starts.

With images of 16 px, a net of width 12 and a θ of width 32, nine runs take about two minutes on two cores. A memory of
ten images has one image per class. A task has about 29 batches, far fewer than the paper's 500. So the queue holds 16
images (ready at 8) and τ = 2, which makes about 14 rounds per task, and new classes count as a new task after only 10
batches. Everything else, including the learning rate of the summaries, is the paper's default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engram.evaluation import Interval
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


def what_was_seen(ends: Mapping[str, Sequence[float]]) -> str:
    """Return in words what the runs show.

    Args:
        ends: end accuracies of each method in percent, with the same seeds in the same order.
    """
    plain, dynamic, summaries = (ends[method] for method in METHODS)
    over_plain, over_dynamic = _difference(summaries, plain), _difference(summaries, dynamic)
    first = f"Summaries change the end accuracy of plain replay by {over_plain.signed()} points"
    second = f"That of the dynamic memory alone they change by {over_dynamic.signed()} points"
    return f"{first}, {_certainty(over_plain)}.\n{second}, {_certainty(over_dynamic)}."


def _difference(of: Sequence[float], over: Sequence[float]) -> Interval:
    return Interval.of([one - other for one, other in zip(of, over, strict=True)])


def _certainty(difference: Interval) -> str:
    """Return in words whether a difference may be chance."""
    if difference.half_width is None:
        return "of one seed, which says nothing about chance"
    if abs(difference.mean) > difference.half_width:
        return "more than chance explains"
    return "which may be chance"
