"""The slices table: a data set distilled by gradient matching, all classes together or in separate groups.

There is no stream. Each group of classes is distilled by itself: its net θ knows only these classes, learns from their
real images, and gives the gradients that the distilled images match. Then a fresh net is trained on all distilled
images and tested. The table shows why θ should know past classes too.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor
from torch.nn import functional as F

from engram.base.batch import choose
from engram.base.errors import InputError
from engram.base.initialization import materialize
from engram.base.rng import Randomness
from engram.experiment.config import LARGEST_CONFIG
from engram.experiment.events import Event
from engram.experiment.result import read_json
from engram.experiment.run import Interrupted
from engram.experiment.save_interval import EVERY_MINUTE, SaveTimer
from engram.nets import ConvNet
from engram.persistence.checkpoint import build_from_checkpoint, holds_checkpoint, write_checkpoint
from engram.persistence.files import read_plain, replace_file, write_json
from engram.persistence.finite import require_finite
from engram.persistence.lock import exclusive_lock
from engram.persistence.state import Tree, module_state, optimizer_state, restore_module, restore_optimizer
from engram.streams import load_dataset
from engram.summarize import (
    augment_differentiably,
    draw_augmentation,
    gradient_target,
    gradient_terms,
    image_learning_rate,
)

CPU = torch.device("cpu")


@dataclass(frozen=True)
class SliceConfig:
    """The configuration of one run of the slices table.

    Args:
        dataset: name of the data set.
        classes: number of classes to use; the seed decides which.
        groups: number of groups the classes are split into.
        images_per_class: distilled images of each class.
        steps: distilling steps of each group.
        width: width of the nets.
        seed: seed of every random draw.
        real_images: real images of a class that one gradient is taken from.
        training_steps: training steps of the fresh net that is tested.
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
class SliceResult:
    """The result of one run of the slices table.

    Args:
        config: configuration of the run.
        average_end_accuracy: accuracy of the fresh net in percent.
        seconds: seconds by part and in total.
    """

    config: SliceConfig
    average_end_accuracy: float
    seconds: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        measured = {"average_end_accuracy": self.average_end_accuracy, "seconds": self.seconds}
        return {"method": "gradient matching", **vars(self.config), **measured}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> SliceResult:
        """Return the result from the plain data that `to_dict` returned."""
        try:
            known = {field.name: content[field.name] for field in dataclasses.fields(SliceConfig)}
            seconds = {str(name): float(value) for name, value in content["seconds"].items()}
            return cls(SliceConfig(**known), float(content["average_end_accuracy"]), seconds)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"this is not a result that this version can read: {error}") from error


@dataclass(frozen=True)
class SliceJob:
    """One run of the slices table: distill, train and test. It can be resumed after any distilling step.

    Args:
        config: configuration of the run.
        out: folder of the run.
    """

    config: SliceConfig
    out: Path

    def run(
        self, should_stop: Callable[[], bool] = lambda: False, on_event: Callable[[Event], None] = lambda event: None
    ) -> SliceResult:
        """Start or continue the run, or read its result if it is finished.

        Args:
            should_stop: when it returns true, the run saves its state and raises `Interrupted`.
            on_event: not used; this run has no events.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(self.out):
            text = yaml.safe_dump(vars(self.config), sort_keys=False)
            config_file = self.out / "config.yaml"
            if config_file.exists() and read_plain(config_file, LARGEST_CONFIG) != text.encode():
                raise InputError(f"{self.out} holds a run of another configuration: use another folder")
            replace_file(config_file, text.encode())
            result = self.out / "result.json"
            if result.is_file():
                return SliceResult.from_dict(read_json(result))
            measured = self._measure(should_stop)
            write_json(result, measured.to_dict())
            return measured

    def _measure(self, should_stop: Callable[[], bool]) -> SliceResult:
        config, folder = self.config, self.out / "checkpoint"
        dataset = load_dataset(config.dataset)
        chosen = np.random.default_rng([config.seed, 0]).permutation(len(dataset.class_names))[: config.classes]
        saved: dict[str, Any] = {"seconds": 0.0, "groups": [], "group": {}}
        if holds_checkpoint(folder):
            saved = build_from_checkpoint(folder, _require_finite)
        for number in range(len(saved["groups"]), config.groups):
            group = np.array_split(chosen, config.groups)[number]
            real = [torch.as_tensor(dataset.train_x[dataset.train_y == label]) for label in group]
            distiller = Distiller(real, config, Randomness(1000 * config.seed + number))
            if saved["group"]:
                distiller.load_state(saved["group"])
            _distill(distiller, config.steps, saved, folder, should_stop)
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
        return SliceResult(config, accuracy, seconds)


def _require_finite(tree: Tree) -> Tree:
    """Return the state of a run, or raise a `NonFiniteStateError`."""
    require_finite(tree, "the distilled images")
    return tree


def _distill(
    distiller: Distiller, steps: int, saved: dict[str, Any], folder: Path, should_stop: Callable[[], bool]
) -> None:
    """Distill until `steps` steps are done, and save a checkpoint from time to time and before stopping early."""
    due, start = SaveTimer(EVERY_MINUTE), time.perf_counter()
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
    """Distills the images of a group of classes.

    The distilled images learn to give the net θ the same gradients as the real images, while θ learns from the real
    images.

    Args:
        real: real images (uint8), one tensor per class.
        config: configuration of the run.
        rng: source of every random draw.
    """

    def __init__(self, real: list[Tensor], config: SliceConfig, rng: Randomness) -> None:
        self.real, self.real_images, self.rng, self.done = real, config.real_images, rng, 0
        channels, size = real[0].shape[1], real[0].shape[-1]
        self.theta = materialize(lambda: ConvNet(channels, size, width=config.width), rng["theta"], CPU)
        self.theta.grow(len(real), rng["theta"])
        self.optimizer = torch.optim.SGD(self.theta.parameters(), lr=0.01, momentum=0.9)
        start = [own[choose(config.images_per_class, len(own), rng["images"])].float() / 255 for own in real]
        self.images = torch.stack(start).requires_grad_()
        rate = image_learning_rate(config.images_per_class)
        self.image_optimizer = torch.optim.SGD([self.images], lr=rate, momentum=0.9)

    @property
    def distilled(self) -> Tensor:
        """The distilled images, class after class."""
        return self.images.detach().flatten(0, 1)

    def step(self) -> None:
        """Change the distilled images by one step, then train θ by one step."""
        self._match_gradients()
        self._train_theta()
        self.done += 1

    def _match_gradients(self) -> None:
        self.image_optimizer.zero_grad()
        for label, own in enumerate(self.real):
            sample = own[choose(self.real_images, len(own), self.rng["images"])].float() / 255
            target = gradient_target(self.theta, _augmented(sample, self.rng), label)
            images = _augmented(self.images[label], self.rng)
            matching, _ = gradient_terms(self.theta, images, label, target, None, 0.0)
            matching.backward()
        self.image_optimizer.step()

    def _train_theta(self) -> None:
        """Train θ by one step on a batch of four real images per class."""
        rng = self.rng["theta"]
        labels = choose(len(self.real) * 4, len(self.real) * 4, rng) % len(self.real)
        own = [self.real[label] for label in labels.tolist()]
        batch = torch.stack([images[choose(1, len(images), rng)[0]] for images in own])
        self.optimizer.zero_grad()
        F.cross_entropy(self.theta(_augmented(batch.float() / 255, self.rng)), labels).backward()
        self.optimizer.step()

    def state(self) -> Tree:
        """Return everything needed to continue: images, θ, optimizers and random state."""
        return {
            "done": self.done,
            "images": self.images.detach(),
            "image_optimizer": optimizer_state(self.image_optimizer),
            "theta": module_state(self.theta),
            "optimizer": optimizer_state(self.optimizer),
            "rng": self.rng.state(),
        }

    def load_state(self, tree: Tree) -> None:
        """Restore what `state` returned."""
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
    """Train a fresh net on distilled images and return its accuracy in percent.

    Args:
        images: distilled images, class after class.
        config: configuration of the run.
        x: test images.
        y: classes of the test images, numbered in the order of `images`.
        should_stop: when it returns true, `Interrupted` is raised; nothing of the training is saved.
    """
    rng = Randomness(config.seed)
    channels, size = x.shape[1], x.shape[-1]
    net = materialize(lambda: ConvNet(channels, size, width=config.width), rng["net"], CPU)
    net.grow(config.classes, rng["net"])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    labels = torch.arange(config.classes).repeat_interleave(config.images_per_class)
    for _ in range(config.training_steps):
        if should_stop():
            raise Interrupted("stopped while training on the distilled images")
        batch = choose(256, len(images), rng["net"])
        optimizer.zero_grad()
        F.cross_entropy(net(_augmented(images[batch], rng)), labels[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        right = [(net(part).argmax(1) == wanted).sum() for part, wanted in zip(x.split(256), y.split(256), strict=True)]
    return 100 * float(sum(right)) / len(y)


def _augmented(images: Tensor, rng: Randomness) -> Tensor:
    return augment_differentiably(images, draw_augmentation(len(images), images.shape[-1], rng["augment"]))
