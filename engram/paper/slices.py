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
from engram.core import Randomness, choose
from engram.errors import InputError
from engram.experiment.every import EVERY_MINUTE, Due
from engram.experiment.lock import only_one
from engram.experiment.run import Interrupted
from engram.initialise import materialise
from engram.nets import ConvNet
from engram.state import Tree, module_state, optimizer_state, restore_module, restore_optimizer
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
    """Distil, train, test; resumable after any step of distilling."""

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
        saved: dict[str, Any] = {"seconds": 0.0, "groups": [], "group": {}}
        if holds_checkpoint(folder):
            saved = read_checkpoint(folder)
        for number in range(len(saved["groups"]), config.groups):
            group = np.array_split(chosen, config.groups)[number]
            real = [torch.as_tensor(dataset.train_x[dataset.train_y == label]) for label in group]
            distiller = Distiller(real, config, Randomness(1000 * config.seed + number))
            if saved["group"]:
                distiller.load_state(saved["group"])
            _distil(distiller, config.steps, saved, folder, should_stop)
            saved["groups"].append(distiller.distilled)
            saved["group"] = {}
            write_checkpoint(folder, saved)
        start = time.perf_counter()
        test = np.isin(dataset.test_y, chosen)
        position = {label: index for index, label in enumerate(chosen.tolist())}
        x = torch.as_tensor(dataset.test_x[test]).float() / 255
        y = torch.tensor([position[label] for label in dataset.test_y[test].tolist()])
        accuracy = train_and_test(torch.cat(saved["groups"]), config, x, y, should_stop)
        total = saved["seconds"] + time.perf_counter() - start
        seconds = {"summarize": round(saved["seconds"], 3), "total": round(total, 3)}
        measured = {"average_end_accuracy": accuracy, "seconds": seconds}
        return {"method": "gradient matching", **vars(config), **measured}


def _distil(
    distiller: Distiller, steps: int, saved: dict[str, Any], folder: Path, should_stop: Callable[[], bool]
) -> None:
    """Go on to so many steps, saving now and then, and before it stops early."""
    due, start = Due(EVERY_MINUTE), time.perf_counter()
    while distiller.done < steps:
        stopping = should_stop()
        if stopping or due.after_batch():
            saved["seconds"] += time.perf_counter() - start
            start = time.perf_counter()
            write_checkpoint(folder, saved | {"group": distiller.state()})
        if stopping:
            raise Interrupted("stopped while distilling")
        distiller.step()
    saved["seconds"] += time.perf_counter() - start


class Distiller:
    """Images of a group of classes that learn to give θ the gradients of the real ones (uint8, a tensor a class), while
    θ learns from the real ones."""

    def __init__(self, real: list[Tensor], config: SliceConfig, rng: Randomness) -> None:
        self.real, self.real_images, self.rng, self.done = real, config.real_images, rng, 0
        channels, size = real[0].shape[1], real[0].shape[-1]
        self.theta = materialise(lambda: ConvNet(channels, size, width=config.width), rng["theta"], CPU)
        self.theta.grow(len(real), rng["theta"])
        self.optimizer = torch.optim.SGD(self.theta.parameters(), lr=0.01, momentum=0.9)
        start = [own[choose(config.images_per_class, len(own), rng["images"])].float() / 255 for own in real]
        self.images = torch.stack(start).requires_grad_()
        rate = image_learning_rate(config.images_per_class)
        self.image_optimizer = torch.optim.SGD([self.images], lr=rate, momentum=0.9)

    @property
    def distilled(self) -> Tensor:
        """Class after class."""
        return self.images.detach().flatten(0, 1)

    def step(self) -> None:
        self._match_gradients()
        self._train_theta()
        self.done += 1

    def _match_gradients(self) -> None:
        self.image_optimizer.zero_grad()
        for label, own in enumerate(self.real):
            sample = own[choose(self.real_images, len(own), self.rng["images"])].float() / 255
            target = matching_target(self.theta, _augmented(sample, self.rng), label)
            images = _augmented(self.images[label], self.rng)
            matching, _ = summarizing_loss(self.theta, images, label, target, None, 0.0)
            matching.backward()
        self.image_optimizer.step()

    def _train_theta(self) -> None:
        """On a batch of four images a class on average."""
        rng = self.rng["theta"]
        labels = choose(len(self.real) * 4, len(self.real) * 4, rng) % len(self.real)
        own = [self.real[label] for label in labels.tolist()]
        batch = torch.stack([images[choose(1, len(images), rng)[0]] for images in own])
        self.optimizer.zero_grad()
        F.cross_entropy(self.theta(_augmented(batch.float() / 255, self.rng)), labels).backward()
        self.optimizer.step()

    def state(self) -> Tree:
        return {
            "done": self.done,
            "images": self.images.detach(),
            "image_optimizer": optimizer_state(self.image_optimizer),
            "theta": module_state(self.theta),
            "optimizer": optimizer_state(self.optimizer),
            "rng": self.rng.state(),
        }

    def load_state(self, tree: Tree) -> None:
        self.done = tree["done"]
        with torch.no_grad():
            self.images.copy_(tree["images"])
        restore_optimizer(self.image_optimizer, tree["image_optimizer"])
        restore_module(self.theta, tree["theta"])
        restore_optimizer(self.optimizer, tree["optimizer"])
        self.rng.load_state(tree["rng"])


def train_and_test(
    images: Tensor, config: SliceConfig, x: Tensor, y: Tensor, should_stop: Callable[[], bool] = lambda: False
) -> float:
    """Accuracy in percent of a fresh net trained on distilled images, class after class; it begins anew if stopped."""
    rng = Randomness(config.seed)
    channels, size = x.shape[1], x.shape[-1]
    net = materialise(lambda: ConvNet(channels, size, width=config.width), rng["net"], CPU)
    net.grow(config.classes, rng["net"])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    labels = torch.arange(config.classes).repeat_interleave(config.images_per_class)
    for _ in range(config.training_steps):
        if should_stop():
            raise Interrupted("stopped while training on what was distilled")
        batch = choose(256, len(images), rng["net"])
        optimizer.zero_grad()
        F.cross_entropy(net(_augmented(images[batch], rng)), labels[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        right = [(net(part).argmax(1) == wanted).sum() for part, wanted in zip(x.split(256), y.split(256), strict=True)]
    return 100 * float(sum(right)) / len(y)


def _augmented(images: Tensor, rng: Randomness) -> Tensor:
    return augment(images, draw_augmentation(len(images), images.shape[-1], rng["augment"]))
