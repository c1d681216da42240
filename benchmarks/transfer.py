"""Is an exported memory worth more than as many real images, to nets it was not made with?

A `SummaryMemory` takes in the small protocol's stream; its memory is adopted by fresh learners with nets of other
architectures and rehearsed. Beside it as many real images: those the summaries began from, and random ones, as many of
each class. Accuracy over all test images of the classes.

    python benchmarks/transfer.py --seeds 3 --out results/transfer.json
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import nn

from engram import ExportedMemory, Learner, SummaryMemory
from engram.streams import TaskStream, class_incremental, load_dataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dataset", default="cifar100", help="of color images")
    parser.add_argument("--tasks", type=int, default=3)
    parser.add_argument("--images-per-class", type=int, default=300)
    parser.add_argument("--memory-size", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--method", default="er", help="how the fresh nets are trained")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--draws", type=int, default=4, help="of random real images, and of initial weights")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for seed in range(options.seeds):
        stream = class_incremental(
            load_dataset(options.dataset),
            seed,
            stream="paper",
            tasks=options.tasks,
            images_per_class=options.images_per_class,
        )
        for row in compared(stream, seed, options):
            print(json.dumps(row), flush=True)
            rows.append(row)
            options.out.write_text(json.dumps(rows, indent=1) + "\n")
    for kind in ("originals", "random"):
        difference = mean(mean(row["memory"]) - mean(row[kind]) for row in rows)
        print(f"memory over {kind} images: {difference:+.2f} points over {len(rows)} pairs")


def compared(stream: TaskStream, seed: int, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Of each architecture, accuracies after training on the memory and on real images."""
    slots = max(1, options.memory_size // stream.class_count)
    memory = SummaryMemory(
        memory_size=options.memory_size, slots_per_class=slots, seed=seed, keep_originals=True, summarize={"fast": True}
    )
    for x, y in stream:
        memory.update(x, y)
    exported = memory.export_memory()
    first = torch.stack([memory.memory.read_original(slot) for slot in range(len(exported))])
    originals = dataclasses.replace(exported, images=first)
    for name, build in NETS.items():
        row: dict[str, Any] = {"seed": seed, "net": name, "images": len(exported), "rounds": memory.rounds}
        row |= {"method": options.method, "steps": options.steps, "memory": [], "originals": [], "random": []}
        for draw in range(options.draws):
            random = random_images(exported, stream, draw)
            for kind, images in (("memory", exported), ("originals", originals), ("random", random)):
                torch.manual_seed(draw)
                learner = Learner(options.method, memory_size=len(images), seed=draw, net=build())
                learner.adopt(images)
                learner.rehearse(options.steps)
                row[kind].append(round(accuracy(learner, stream), 2))
        yield row


def random_images(like: ExportedMemory, stream: TaskStream, seed: int) -> ExportedMemory:
    """As many images of each class as `like` has, drawn from the stream."""
    images, labels = zip(*stream, strict=True)
    x, y = np.concatenate(images), np.concatenate(labels)
    rng = np.random.default_rng(seed)
    counts = Counter(like.labels)
    chosen = np.concatenate([rng.choice(np.where(y == label)[0], counts[label], replace=False) for label in counts])
    none = torch.zeros(len(chosen), dtype=torch.bool)
    return ExportedMemory(torch.as_tensor(x[chosen]).float() / 255, y[chosen].tolist(), none, none, len(chosen))


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
