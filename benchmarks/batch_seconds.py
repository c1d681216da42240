"""How long does a batch of ten images take with each method, at the paper's own protocol?

The first task of CIFAR-100 in class-balanced batches, one thread. The paper's methods have a memory of 100 images,
er-ema has the same bytes. Learners take turns, six batches each, so that scr+ssd makes one round of summarizing.
Medians of the processor's time after the queue is full.

    python benchmarks/batch_seconds.py --out results/batch-seconds.json
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch

from engram import Learner, class_incremental, load_dataset

PAPER: dict[str, Any] = {"memory_size": 100, "classes_total": 100, "slots_per_class": 1}
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "scr": ("scr", PAPER),
    "scr+ssd": ("scr+ssd", PAPER),
    "scr in bf16": ("scr", PAPER | {"precision": "bf16"}),
    "scr+ssd in bf16": ("scr+ssd", PAPER | {"precision": "bf16"}),
    "er-ema, 2 steps, in bf16": ("er-ema", {"memory_bytes": 307_200, "precision": "bf16"}),
    "er-ema, 4 steps, in bf16": ("er-ema", {"memory_bytes": 307_200, "precision": "bf16", "repeats": 4}),
}
FULL_QUEUE, TURN = 66, 6
"""Batches until every class has a full queue, and batches of a turn."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="file for the result")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    stream = class_incremental(load_dataset("cifar100"), seed=0, stream="paper", tasks=1, classes_per_task=10)
    batches = list(islice(stream, FULL_QUEUE + TURN * options.turns))
    learners = {name: Learner(method, threads=1, **given) for name, (method, given) in SYSTEMS.items()}
    spent: dict[str, list[float]] = {name: [] for name in learners}
    for turn in range(options.turns + 1):
        first = 0 if turn == 0 else FULL_QUEUE + TURN * (turn - 1)
        own = batches[first : FULL_QUEUE + TURN * turn]
        for name, learner in learners.items():
            began = time.process_time()
            for images, labels in own:
                learner.observe(images, labels)
            if turn:
                spent[name].append((time.process_time() - began) / len(own))
    found = {name: {"seconds": round(median(times), 4)} for name, times in spent.items()}
    for name, learner in learners.items():
        train, store = learner.seconds["train"], learner.seconds["store"]
        found[name]["store_share"] = round(store / (train + store), 4)
        print(f"{name}: {found[name]}", flush=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
