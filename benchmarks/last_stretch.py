"""How much of a run's end accuracy is luck: its last stretch again, under other replay and augmentation draws.

A finished run keeps the checkpoint before the last one. This loads it, reseeds the learner's `replay` and `augment`
generators, lets the stream run out and scores every task, once for each of `--draws`. Draw 0 reseeds nothing and must
repeat the run's own result.

    python benchmarks/last_stretch.py runs/half-ssd --draws 8 --out results/half-last-stretch-ssd.json
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
import yaml

from engram.experiment.run import RunConfig, stream_of
from engram.learner import Learner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = yaml.safe_load((options.run / "config.yaml").read_text())
    chosen = {field.name: config[field.name] for field in dataclasses.fields(RunConfig) if field.name in config}
    stream = stream_of(RunConfig(**chosen))
    generations = sorted((options.run / "checkpoint").glob("gen-*"), key=lambda path: int(path.name[4:]))
    results = []
    for draw in range(options.draws):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(generations[0], Path(folder) / generations[0].name)
            (Path(folder) / "CURRENT").write_text(generations[0].name)
            learner, at = Learner.load_with_extra(folder)
        if draw:
            for name in ("replay", "augment"):
                learner.rng[name].manual_seed(draw)
        for x, y in stream.batches(stream.tasks[at["task"]], at["batch"]):
            learner.observe(x, y)
        accuracies = []
        for task in stream.tasks:
            x, y = stream.test(task)
            accuracies.append(100 * float(np.mean(np.array(learner.predict(x)) == y)))
        average = sum(accuracies) / len(accuracies)
        results.append({"draw": draw, "from_batch": at["batch"], "accuracies": accuracies, "average": average})
        print(f"{config['method']} draw {draw}: {average:.2f}", flush=True)
        options.out.write_text(json.dumps({"method": config["method"], "draws": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
