"""How much of a run's end accuracy is luck: its last stretch again, under other replay and augmentation draws.

A finished run keeps the checkpoint before the last one. This loads it, reseeds the learner's generators of replay and
augmentation, lets the stream run out and scores every task, once for each of `--draws`. Draw 0 reseeds nothing and
must repeat the run's own result.

    python benchmarks/last_stretch.py runs/half-dynamic runs/half-ssd --out results/half-last-stretch.json
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from engram.evaluation import score_tasks
from engram.experiment.config import config_of
from engram.experiment.run import stream_of
from engram.learner import Learner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    measured = []
    for run in options.runs:
        measured.append({"method": config_of(run).method, "draws": list(again(run, options.draws))})
        options.out.write_text(json.dumps(measured, indent=1) + "\n")


def again(run: Path, draws: int) -> Iterator[dict[str, Any]]:
    """Yield the outcome of the last stretch of the run, once per draw."""
    config = config_of(run)
    stream = stream_of(config)
    generations = sorted((run / "checkpoint").glob("gen-*"), key=lambda path: int(path.name[4:]))
    for draw in range(draws):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(generations[0], Path(folder) / generations[0].name)
            (Path(folder) / "CURRENT").write_text(generations[0].name)
            learner, at = Learner.load_with_extra(folder)
        if draw:
            for name in ("replay", "augment", "augmentation"):
                learner.rng[name].manual_seed(draw)
        for x, y in stream.batches(stream.tasks[at["task"]], at["batch"]):
            learner.observe(x, y)
        accuracies = score_tasks(learner.predict, stream, stream.tasks)
        average = sum(accuracies) / len(accuracies)
        print(f"{config.method} draw {draw}: {average:.2f}", flush=True)
        yield {"draw": draw, "from_batch": at["batch"], "accuracies": accuracies, "average": average}


if __name__ == "__main__":
    main()
