"""The slices table: a data set distilled by gradient matching, all classes together or in groups apart.

No stream. Each group of classes is distilled by itself: its net θ knows these classes only, learns from their real
images, and gives the gradients that the distilled images match. Then a fresh net is trained on all distilled images. It
shows why θ should know past classes too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor
from torch.nn import functional as F

from engram.checkpoint import holds_checkpoint, read_checkpoint, replace_file, write_checkpoint, write_json
from engram.core import InputError, Randomness, choose
from engram.experiment.lock import only_one
from engram.experiment.run import Interrupted
from engram.initialise import materialise
from engram.nets import ConvNet
from engram.streams import load_dataset
from engram.summarize import augment, draw_augmentation, image_learning_rate, matching_target, summarizing_loss

CPU = torch.device("cpu")


@dataclass(frozen=True)
class SliceConfig:
    """Args:
    dataset: by name.
    classes: how many of its classes, drawn by the seed.
    groups: how many groups they are cut into.
    images_per_class: distilled images of each.
    steps: of distilling each group.
    width: of the nets.
    seed: of every draw.
    real_images: of a class, for one gradient.
    training_steps: of the fresh net that is tested.
    """

    dataset: str
    classes: int
    groups: int
    images_per_class: int
    steps: int
    width: int = 128
    seed: int = 0
    real_images: int = 64
    training_steps: int = 300


@dataclass(frozen=True)
class SliceJob:
    """Distil, train, test; resumable between groups."""

    config: SliceConfig
    out: Path

    def run(self, should_stop: Callable[[], bool]) -> dict[str, Any]:
        self.out.mkdir(parents=True, exist_ok=True)
        with only_one(self.out):
            text = yaml.safe_dump(vars(self.config), sort_keys=False)
            config_file = self.out / "config.yaml"
            if config_file.is_file() and config_file.read_text() != text:
                raise InputError(f"{self.out} holds a run of another configuration: use another folder")
            replace_file(config_file, text.encode())
            result = self.out / "result.json"
            if result.is_file():
                finished: dict[str, Any] = json.loads(result.read_text())
                return finished
            measured = self._measure(should_stop)
            write_json(result, measured)
            return measured

    def _measure(self, should_stop: Callable[[], bool]) -> dict[str, Any]:
        config, folder = self.config, self.out / "checkpoint"
        dataset = load_dataset(config.dataset)
        chosen = np.random.default_rng([config.seed, 0]).permutation(len(dataset.class_names))[: config.classes]
        saved: dict[str, Any] = {"seconds": 0.0, "groups": []}
        if holds_checkpoint(folder):
            saved = read_checkpoint(folder)
        for number in range(len(saved["groups"]), config.groups):
            start = time.perf_counter()
            group = np.array_split(chosen, config.groups)[number]
            real = [torch.as_tensor(dataset.train_x[dataset.train_y == label]) for label in group]
            distilled = distil(real, config, Randomness(1000 * config.seed + number), should_stop)
            saved["groups"].append(distilled)
            saved["seconds"] += time.perf_counter() - start
            write_checkpoint(folder, saved)
        start = time.perf_counter()
        test = np.isin(dataset.test_y, chosen)
        position = {label: index for index, label in enumerate(chosen.tolist())}
        x = torch.as_tensor(dataset.test_x[test]).float() / 255
        y = torch.tensor([position[label] for label in dataset.test_y[test].tolist()])
        accuracy = train_and_test(torch.cat(saved["groups"]), config, x, y)
        total = saved["seconds"] + time.perf_counter() - start
        seconds = {"summarize": round(saved["seconds"], 3), "total": round(total, 3)}
        measured = {"average_end_accuracy": accuracy, "seconds": seconds}
        return {"method": "gradient matching", **vars(config), **measured}


def distil(
    real: list[Tensor], config: SliceConfig, rng: Randomness, should_stop: Callable[[], bool] = lambda: False
) -> Tensor:
    """Images (classes × images_per_class, C, H, W) that give θ the gradients of these real ones (uint8, a tensor a
    class); θ learns from the real images as it goes."""
    channels, size = real[0].shape[1], real[0].shape[-1]
    theta = materialise(lambda: ConvNet(channels, size, width=config.width), rng["theta"], CPU)
    theta.grow(len(real), rng["theta"])
    optimizer = torch.optim.SGD(theta.parameters(), lr=0.01, momentum=0.9)
    start = [own[choose(config.images_per_class, len(own), rng["images"])].float() / 255 for own in real]
    images = torch.stack(start).requires_grad_()
    rate = image_learning_rate(config.images_per_class)
    image_optimizer = torch.optim.SGD([images], lr=rate, momentum=0.9)
    for _ in range(config.steps):
        if should_stop():
            raise Interrupted("stopped while distilling")
        image_optimizer.zero_grad()
        for label, own in enumerate(real):
            sample = own[choose(config.real_images, len(own), rng["images"])].float() / 255
            target = matching_target(theta, _augmented(sample, rng), label)
            matching, _ = summarizing_loss(theta, _augmented(images[label], rng), label, target, None, 0.0)
            matching.backward()
        image_optimizer.step()
        labels = choose(len(real) * 4, len(real) * 4, rng["theta"]) % len(real)
        batch = torch.stack([real[label][choose(1, len(real[label]), rng["theta"])[0]] for label in labels.tolist()])
        optimizer.zero_grad()
        F.cross_entropy(theta(_augmented(batch.float() / 255, rng)), labels).backward()
        optimizer.step()
    return images.detach().flatten(0, 1)


def train_and_test(images: Tensor, config: SliceConfig, x: Tensor, y: Tensor) -> float:
    """Accuracy in percent of a fresh net trained on distilled images, class after class."""
    rng = Randomness(config.seed)
    channels, size = x.shape[1], x.shape[-1]
    net = materialise(lambda: ConvNet(channels, size, width=config.width), rng["net"], CPU)
    net.grow(config.classes, rng["net"])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    labels = torch.arange(config.classes).repeat_interleave(config.images_per_class)
    for _ in range(config.training_steps):
        batch = choose(256, len(images), rng["net"])
        optimizer.zero_grad()
        F.cross_entropy(net(_augmented(images[batch], rng)), labels[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        right = [(net(part).argmax(1) == wanted).sum() for part, wanted in zip(x.split(256), y.split(256), strict=True)]
    return 100 * float(sum(right)) / len(y)


def _augmented(images: Tensor, rng: Randomness) -> Tensor:
    return augment(images, draw_augmentation(len(images), images.shape[-1], rng["augment"]))
