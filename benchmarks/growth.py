"""Does a step stay as fast as more classes, more memory and more stream come? Seconds a step for `scr` and `scr+ssd`.

Classes: 10 to 1,000 known, 10 in every batch. Memory: K of 100 to 10,000, 100 images replayed. Both at the paper's
sizes, averaged over whole periods of summarizing (one round in six steps). Stream: thousands of batches through a small
net, step time and resident memory in windows.

    python benchmarks/growth.py --out results/growth.json --plot docs/pictures/growth.png
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from engram.base.batch import Batch
from engram.learner import Learner

METHODS = ("scr", "scr+ssd")
CLASS_COUNTS = (10, 100, 1000)
MEMORY_SIZES = (100, 1000, 10_000)
PERIOD = 6
"""Steps from one round of summarizing to the next (the default interval)."""
AT_ONCE = 100
QUEUED = 32
WINDOW = 100
SIZE = 32
RANDOM = np.random.default_rng(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--periods", type=int, default=2, help="periods of six steps to average over")
    parser.add_argument("--batches", type=int, default=1000, help="batches of the long stream")
    options = parser.parse_args()
    torch.set_num_threads(1)
    measured: dict[str, dict[str, Any]] = {"classes": {}, "memory_size": {}, "stream": {}}
    for method in METHODS:
        measured["classes"][method] = waiting_lock(method, "classes", CLASS_COUNTS, options.periods)
        measured["memory_size"][method] = waiting_lock(method, "memory_size", MEMORY_SIZES, options.periods)
        measured["stream"][method] = long_stream(method, options.batches)
        print(method, json.dumps({what: of[method] for what, of in measured.items()}), flush=True)
    options.out.write_text(json.dumps(measured, indent=1) + "\n")
    if options.plot:
        plot(measured, options.plot)


def waiting_lock(method: str, what: str, values: tuple[int, ...], periods: int) -> dict[str, float]:
    """Mean seconds of a step at each value; the learners take their periods in turn, so that all see one machine."""
    learners = {value: learner_with(method, **{what: value}) for value in values}
    seconds = dict.fromkeys(values, 0.0)
    for _ in range(periods):
        for value, learner in learners.items():
            start = time.perf_counter()
            for _ in range(PERIOD):
                learner.observe(images(10), list(range(10)))
            seconds[value] += time.perf_counter() - start
    return {str(value): round(total / (PERIOD * periods), 4) for value, total in seconds.items()}


def learner_with(method: str, classes: int = 10, memory_size: int = 1000) -> Learner:
    """A learner that knows so many classes, whose memory is full, and whose queues allow summarizing ten of them."""
    learner = Learner(method, memory_size=memory_size, slots_per_class=1)
    for first in range(0, classes, AT_ONCE):
        new = list(range(first, min(first + AT_ONCE, classes)))
        learner.observe(images(len(new)), new)
    left = memory_size - learner.memory.size
    if left > 0:
        x = torch.as_tensor(images(left))
        learner.policy.store(Batch(x / 255, torch.arange(left) % classes, x), learner._context())
    learner.observe(images(10 * QUEUED), list(range(10)) * QUEUED)
    return learner


def long_stream(method: str, batches: int) -> dict[str, Any]:
    """Median milliseconds a step, and resident kilobytes, by window of the stream; every window brings ten classes."""
    learner = Learner(
        method,
        memory_size=100,
        net={"width": 8},
        theta={"width": 16} if "ssd" in method else None,
        scheme={"replay": 10},
        summarize={"queue": 16} if "ssd" in method else None,
    )
    times, windows = [], []
    for index in range(batches):
        x, y = images(10), [10 * (index // WINDOW % 5) + i for i in range(10)]
        start = time.perf_counter()
        learner.observe(x, y)
        times.append(time.perf_counter() - start)
        if (index + 1) % WINDOW == 0:
            windows.append({"batch": index + 1, "ms": round(1000 * median(times), 3), "resident_kb": resident_kb()})
            times = []
    settled = windows[len(windows) // 2 :]
    slope = np.polyfit([one["batch"] for one in settled], [one["resident_kb"] for one in settled], 1)[0]
    return {"windows": windows, "resident_bytes_a_batch": round(1024 * float(slope), 1)}


def resident_kb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def images(count: int) -> np.ndarray[Any, Any]:
    return RANDOM.integers(0, 256, (count, 3, SIZE, SIZE), dtype=np.uint8)


def plot(measured: dict[str, Any], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained")
    for axis, what, label in zip(axes, ("classes", "memory_size"), ("classes known", "memory size K"), strict=False):
        for method, curve in measured[what].items():
            axis.plot([int(value) for value in curve], list(curve.values()), marker="o", label=method)
        axis.set(xscale="log", xlabel=label, ylabel="seconds a step")
    for method, stream in measured["stream"].items():
        axes[2].plot(
            [one["batch"] for one in stream["windows"]],
            [one["ms"] for one in stream["windows"]],
            marker=".",
            label=method,
        )
    axes[2].set(xlabel="batches of a long stream", ylabel="ms a step (small net)")
    for axis in axes:
        axis.set_ylim(bottom=0)
        axis.legend(frameon=False)
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    main()
