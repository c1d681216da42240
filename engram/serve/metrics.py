"""Counters and times, in the text format of Prometheus."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds of the times that are counted together, in seconds."""
COUNTERS = {
    "batches_accepted": "Batches that were acknowledged.",
    "batches_duplicate": "Batches that were sent again and not learned again.",
    "batches_learned": "Batches learned since the server was started.",
    "batches_failed": "Batches that the learner refused because learning diverged.",
    "images_learned": "Images learned since the server was started.",
    "images_predicted": "Images predicted.",
    "requests_refused": "Requests that were refused.",
    "checkpoints": "Checkpoints written.",
    "checkpoint_failures": "Checkpoints that could not be written.",
}


class Histogram:
    """Counts times by size."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds

    def lines(self, name: str, learner: str) -> Iterable[str]:
        """Yield the lines of this histogram."""
        total = 0
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{learner="{learner}",le="{bound}"}} {total}'
        yield f'{name}_sum{{learner="{learner}"}} {self.sum:.6f}'
        yield f'{name}_count{{learner="{learner}"}} {total}'


class Metrics:
    """What is counted about one learner. Any thread may count."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self.times = {"observe": Histogram(), "predict": Histogram()}
        self.checkpoint_seconds = 0.0
        self._lock = threading.Lock()

    def count(self, name: str, by: int = 1) -> None:
        """Count one thing, or several."""
        with self._lock:
            self.counts[name] += by

    def time(self, name: str, seconds: float) -> None:
        """Count how long a request took."""
        with self._lock:
            self.times[name].add(seconds)


def prometheus_text(learners: Mapping[str, tuple[Metrics, Mapping[str, float], Mapping[str, int]]]) -> str:
    """Return the metrics of all learners.

    Args:
        learners: by name: what is counted, values of this moment by name, and bytes by part.
    """
    lines: list[str] = []
    for name, help_text in COUNTERS.items():
        lines += [f"# HELP engram_{name}_total {help_text}", f"# TYPE engram_{name}_total counter"]
        lines += [
            f'engram_{name}_total{{learner="{learner}"}} {each.counts[name]}'
            for learner, (each, _, _) in learners.items()
        ]
    for name in ("observe", "predict"):
        lines += [f"# TYPE engram_{name}_seconds histogram"]
        for learner, (each, _, _) in learners.items():
            lines += each.times[name].lines(f"engram_{name}_seconds", learner)
    for name in sorted({name for _, values, _ in learners.values() for name in values}):
        lines += [f"# TYPE engram_{name} gauge"]
        lines += [f'engram_{name}{{learner="{key}"}} {values[name]:.15g}' for key, (_, values, _) in learners.items()]
    lines += ["# TYPE engram_bytes gauge"]
    for learner, (_, _, held) in learners.items():
        lines += [f'engram_bytes{{learner="{learner}",part="{part}"}} {size}' for part, size in held.items()]
    return "\n".join(lines) + "\n"
