"""What a finished run would have answered with other classifiers: the same net and memory, scored once more.

python benchmarks/answers.py runs/full-er-ema --out results/full-answers.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from engram.base.interfaces import Classifier
from engram.classifiers import NearestClassMean, Softmax
from engram.evaluation import score_tasks
from engram.experiment.config import config_of
from engram.experiment.run import stream_of
from engram.learner import Learner

CLASSIFIERS: dict[str, Classifier] = {
    "softmax": Softmax(),
    "softmax, mirrored": Softmax(mirror=True),
    "nearest class mean": NearestClassMean(),
    "nearest class mean, mirrored": NearestClassMean(mirror=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.write_text(json.dumps([answers(run) for run in options.runs], indent=1) + "\n")


def answers(run: Path) -> dict[str, Any]:
    """Return the configuration of a run and, by classifier, the accuracy on each task at the end."""
    config, learner = config_of(run), Learner.load(run)
    stream = stream_of(config)
    accuracies = {}
    for name, classifier in CLASSIFIERS.items():
        learner.classifier = classifier
        accuracies[name] = score_tasks(learner.predict, stream, stream.tasks)
        print(f"{run}, {name}: {mean(accuracies[name]):.1f}", flush=True)
    return {"config": config.to_dict(), "accuracies": accuracies}


if __name__ == "__main__":
    main()
