"""How long is a batch if most of the net is frozen?

Batches of ten images of 32×32, the reduced ResNet-18, a memory of 50 KB, one thread. Medians over batches of the
processor's time, in milliseconds: of the frozen part on the batch, of the training step above it, of storing, and of
all that `observe` does. A step costs the same with any weights, so these are random.

    python benchmarks/latent_step.py --out results/latent-step.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from engram import Learner
from engram.nets import ReducedResNet18

CLASSES, BATCH, SIZE, MEMORY, WARM_UP = 20, 10, 32, 50_000, 40
SYSTEMS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("er", {"freeze": "all"}),
    ("er-ema", {"freeze": "all"}),
    ("er-ema", {"freeze": "until:blocks.6"}),
    ("er-ema", {"codec": "uint8"}),
)
"""Methods, and what is frozen of their net."""
PARTS = {"train": "_train", "store": "_store_batch"}
"""Methods of the learner that are timed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="file for the result")
    parser.add_argument("--batches", type=int, default=60, help="batches that are timed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure(method, changes, options.batches) for method, changes in SYSTEMS]
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


def measure(method: str, changes: dict[str, Any], batches: int) -> dict[str, Any]:
    """Return the times of a batch."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    learner = Learner(method, net=ReducedResNet18(3, SIZE), memory_bytes=MEMORY, threads=1, **changes)
    spent: dict[str, list[float]] = {"observe": []}
    for index in range(WARM_UP + batches):
        images = rng.integers(0, 256, (BATCH, 3, SIZE, SIZE), dtype=np.uint8)
        labels = rng.integers(0, CLASSES, BATCH)
        if index == WARM_UP:
            for name, part in PARTS.items():
                setattr(learner, part, timed(getattr(learner, part), spent.setdefault(name, [])))
            if learner.front is not None:
                learner.front.latents = timed(  # type: ignore[method-assign]
                    learner.front.latents, spent.setdefault("front", [])
                )
        observe = learner.observe if index < WARM_UP else timed(learner.observe, spent["observe"])
        observe(images, labels)
    row = {"method": method, "freeze": changes.get("freeze"), "batches": batches}
    row |= {f"{name}_ms": round(1000 * median(times), 2) for name, times in spent.items()}
    row["front_ms"] = row.get("front_ms", 0.0)
    print(json.dumps(row), flush=True)
    return row


def timed(function: Callable[..., Any], times: list[float]) -> Callable[..., Any]:
    """Return the same function, which notes how long each call takes."""

    def call(*arguments: Any) -> Any:
        start = time.process_time()
        result = function(*arguments)
        times.append(time.process_time() - start)
        return result

    return call


if __name__ == "__main__":
    main()
