"""What is worth most in a small memory: latents of a frozen net, WebP images or raw images?

A reduced ResNet-18 is trained offline on 20 classes of CIFAR-100, once. Then the other 80 classes come in 8 tasks of
10, in another order for each seed, each image once. `METHOD` learns them, starting from those weights: with the net
frozen as a whole, frozen up to a layer, and not frozen, replaying WebP or raw images. Each run is one JSON file in the
folder of runs; runs that are there are not run again. Accuracy is over all test images of the 80 classes, at the end.

    python benchmarks/latent_replay.py --runs runs/latent-replay --out results/latent-replay.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from engram import Learner
from engram.augmentations import RandomView
from engram.base.batch import as_float
from engram.base.precision import computing_in
from engram.memory import Balanced
from engram.methods import METHODS
from engram.nets import ReducedResNet18
from engram.streams import load_dataset

BASE_CLASSES, TASK_CLASSES, BATCH = 20, 10, 10
REPLAY = 22
"""Images replayed beside a batch."""
METHOD = replace(
    METHODS["er"],
    policy=Balanced,
    augment=RandomView,
    settings={"scheme": {"replay": REPLAY, "passes": "joint-mean"}},
    options={"average": 0.99},
)
"""What er-ema was when this was first measured: cross-entropy, one step a batch, answers by softmax."""
BASE_BATCH, BASE_RATE, PADDING = 64, 0.1, 4
LAYER = "blocks.6"
"""The net is frozen up to here in one of the variants: its last block learns."""
VARIANTS: dict[str, dict[str, Any]] = {
    "latents, all frozen": {"freeze": "all", "codec": "latent8"},
    f"latents, until {LAYER}": {"freeze": f"until:{LAYER}", "codec": "latent8"},
    "webp(50) images": {"codec": "webp(50)"},
    "raw images": {"codec": "uint8"},
}


@dataclass(frozen=True)
class Split:
    """The images of one seed. The classes that the net is trained on are the same for all.

    Args:
        base: training images and labels of the classes that the net is trained on offline.
        tasks: training images and labels of each task of the stream.
        test: test images and labels of the classes of all tasks.
    """

    base: tuple[Any, Any]
    tasks: list[tuple[Any, Any]]
    test: tuple[Any, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/latent-replay"), help="folder of the runs")
    parser.add_argument("--out", type=Path, help="file for the collected result")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budgets", type=int, nargs="+", default=[50_000, 150_000, 500_000])
    parser.add_argument("--images-per-class", type=int, default=100, help="of the stream")
    parser.add_argument("--epochs", type=int, default=8, help="of the training offline")
    parser.add_argument("--precision", default="bf16")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.runs.mkdir(parents=True, exist_ok=True)
    rows = []
    for seed in range(options.seeds):
        for budget in options.budgets:
            for variant in VARIANTS:
                name = f"{variant}-{budget}-seed{seed}".replace(" ", "-").replace(",", "")
                path = options.runs / f"{name}.json"
                if not path.exists():
                    row = run(variant, budget, seed, options)
                    path.write_text(json.dumps(row, indent=1) + "\n")
                    print(json.dumps(row), flush=True)
                rows.append(json.loads(path.read_text()))
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


def run(variant: str, budget: int, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return the result of one run."""
    split = split_classes(seed, options.images_per_class)
    net, base_accuracy = trained_net(split, options)
    chosen: Any = {"precision": options.precision, "threads": 1} | VARIANTS[variant]
    learner = Learner(METHOD, net=net, memory_bytes=budget, seed=seed, **chosen)
    milliseconds = []
    for images, labels in stream_of(split, seed):
        start = time.process_time()
        learner.observe(images, labels)
        milliseconds.append(1000 * (time.process_time() - start))
    answers = np.concatenate([learner.predict(part) for part in np.array_split(split.test[0], 16)])
    footprint = dict(learner.footprint())
    return {
        "variant": variant,
        "memory_bytes": budget,
        "seed": seed,
        "accuracy": round(100 * float((answers == split.test[1]).mean()), 2),
        "base_accuracy": base_accuracy,
        "memory_images": learner.memory.size,
        "latent_shape": list(learner.memory.shape),
        "batches": len(milliseconds),
        "ms_per_batch": round(float(np.median(milliseconds)), 2),
        "footprint": footprint,
        "images_per_class": options.images_per_class,
        "replay": REPLAY,
        "epochs": options.epochs,
        "precision": options.precision,
    }


def split_classes(seed: int, images_per_class: int) -> Split:
    """Draw the tasks and images of the stream; `seed` does not change which classes the net is trained on before."""
    data = load_dataset("cifar100")
    base, later = np.split(np.random.default_rng(0).permutation(100), [BASE_CLASSES])
    rng = np.random.default_rng(seed)
    x, y = np.asarray(data.train_x), np.asarray(data.train_y)
    tasks = []
    for classes in np.split(rng.permutation(later), len(later) // TASK_CLASSES):
        own = [rng.permutation(np.flatnonzero(y == label))[:images_per_class] for label in classes]
        indices = rng.permutation(np.concatenate(own))
        tasks.append((x[indices], y[indices]))
    tested = np.isin(data.test_y, later)
    test = np.asarray(data.test_x)[tested], np.asarray(data.test_y)[tested]
    return Split((x[np.isin(y, base)], y[np.isin(y, base)]), tasks, test)


def stream_of(split: Split, seed: int) -> Iterator[tuple[Any, Any]]:
    """Yield the batches of all tasks."""
    for images, labels in split.tasks:
        for start in range(0, len(labels), BATCH):
            yield images[start : start + BATCH], labels[start : start + BATCH]


def trained_net(split: Split, options: argparse.Namespace) -> tuple[nn.Module, float]:
    """Return the net after its training offline, and its accuracy on the training images in the last epoch."""
    path = options.runs / f"base-epochs{options.epochs}.safetensors"
    net = ReducedResNet18(3, 32, width=20)
    if not path.exists():
        accuracy = train_offline(net, *split.base, options)
        save_file(net.state_dict() | {"accuracy": torch.tensor(accuracy)}, path)
    weights = load_file(path)
    accuracy = float(weights.pop("accuracy"))
    net.load_state_dict(weights)
    return net, round(accuracy, 2)


def train_offline(net: ReducedResNet18, x: Any, y: Any, options: argparse.Namespace) -> float:
    """Train a net by SGD with momentum on random crops and mirror images; return its accuracy in the last epoch."""
    torch.manual_seed(0)
    _, labels = np.unique(y, return_inverse=True)
    images, targets = torch.from_numpy(x), torch.from_numpy(labels)
    whole = nn.Sequential(net, nn.Linear(net.feature_width, BASE_CLASSES))
    whole = whole.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(whole.parameters(), BASE_RATE, momentum=0.9, weight_decay=5e-4, nesterov=True)
    steps = options.epochs * -(-len(images) // BASE_BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, BASE_RATE, total_steps=steps)
    right = 0.0
    for epoch in range(options.epochs):
        right = 0.0
        for part in torch.randperm(len(images)).split(BASE_BATCH):
            with computing_in(options.precision, torch.device("cpu")):
                logits = whole(shaken(as_float(images[part])))
            loss = F.cross_entropy(logits.float(), targets[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            right += float((logits.argmax(1) == targets[part]).sum())
        print(f"epoch {epoch + 1}: {100 * right / len(images):.1f} % of the training images", flush=True)
    net.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return 100 * right / len(images)


def shaken(images: Tensor) -> Tensor:
    """Return each image shifted by up to four pixels, and mirrored half of the time."""
    count, _, height, width = images.shape
    padded = F.pad(images, (PADDING,) * 4)
    moved = torch.randint(2 * PADDING + 1, (2, count, 1))
    rows = (moved[0] + torch.arange(height))[:, :, None]
    columns = (moved[1] + torch.arange(width))[:, None, :]
    crops = padded.permute(0, 2, 3, 1)[torch.arange(count)[:, None, None], rows, columns].permute(0, 3, 1, 2)
    return torch.where(torch.rand(count, 1, 1, 1) < 0.5, crops.flip(3), crops)


if __name__ == "__main__":
    main()
