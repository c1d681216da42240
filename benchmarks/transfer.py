"""Is an exported memory worth more than as many real images, to a net it was not made with?

Each RUN's memory is adopted by fresh learners whose nets are of other architectures than the run's, and rehearsed;
beside it as many random real images of the same classes, class by class. Accuracy over all test images of them.

    python benchmarks/transfer.py runs/small-ssd/seed-* --out results/transfer.json
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import nn

from engram import ExportedMemory, Learner
from engram.experiment.config import config_of
from engram.experiment.run import stream_of
from engram.streams import TaskStream


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--method", default="scr", help="how the fresh nets are trained")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--draws", type=int, default=3, help="draws of random real images, and initialisations")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for run in options.runs:
        config = config_of(run)
        stream = stream_of(config)
        exported = Learner.load(run).export_memory()
        for name, build in NETS.items():
            row: dict[str, Any] = {"run": run.name, "seed": config.seed, "net": name, "images": len(exported)}
            row |= {"method": options.method, "steps": options.steps, "memory": [], "random": []}
            for draw in range(options.draws):
                for kind, images in (("memory", exported), ("random", random_images(exported, stream, draw))):
                    torch.manual_seed(draw)
                    learner = Learner(options.method, memory_size=len(images), seed=draw, net=build())
                    learner.adopt(images)
                    learner.rehearse(options.steps)
                    row[kind].append(round(accuracy(learner, stream), 2))
            print(json.dumps(row), flush=True)
            rows.append(row)
    differences = [mean(row["memory"]) - mean(row["random"]) for row in rows]
    print(f"mean difference {mean(differences):+.2f} points over {len(rows)} pairs")
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


def random_images(like: ExportedMemory, stream: TaskStream, seed: int) -> ExportedMemory:
    """As many images of each class as `like` has, drawn from the stream."""
    images, labels = zip(*(batch for task in stream.tasks for batch in stream.batches(task)), strict=True)
    x, y = np.concatenate(images), np.concatenate(labels)
    rng = np.random.default_rng(seed)
    chosen = [
        index
        for label, count in Counter(like.labels).items()
        for index in rng.choice(np.where(y == label)[0], count, replace=False)
    ]
    count = len(chosen)
    none = torch.zeros(count, dtype=torch.bool)
    return ExportedMemory(torch.as_tensor(x[chosen]).float() / 255, y[chosen].tolist(), none, none, count)


def accuracy(learner: Learner, stream: TaskStream) -> float:
    x, y = zip(*(stream.test(task) for task in stream.tasks), strict=True)
    return 100 * float(np.mean(np.array(learner.predict(np.concatenate(x))) == np.concatenate(y)))


def plain_convnet() -> nn.Module:
    """Like the summarizing net, half as wide and with batch norm."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 64), (64, 64), (64, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.AvgPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten())


def strided() -> nn.Module:
    """Six convolutions, strided, and global pooling."""
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((3, 32, 1), (32, 32, 2), (32, 64, 1), (64, 64, 2), (64, 128, 1), (128, 128, 2)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, 1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


NETS = {"convnet": plain_convnet, "strided": strided}


if __name__ == "__main__":
    main()
