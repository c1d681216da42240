"""Estimates of how long a plan will take, from two timed steps of each method on this machine."""

from __future__ import annotations

import dataclasses
import json
from time import perf_counter
from typing import Any

import numpy as np
import torch

from engram.base.batch import Batch
from engram.base.devices import using_threads
from engram.base.rng import Randomness
from engram.experiment.config import RunConfig
from engram.learner import Learner
from engram.methods import find_method
from engram.paper.grid import Cell
from engram.paper.slices import Distiller, SliceConfig, train_and_test
from engram.streams import DATASETS

TIMED_SIZE = 32
"""Most pixels per side of the images that a step is timed on. Larger images are not timed, because they might need more
memory than there is: the time is scaled by their number of pixels."""
STORED = 200
"""Least number of images put into the memory for timing; a step replays at most 100."""


class Stopwatch:
    """Estimates the seconds of runs. It times each method and protocol once, and remembers the result."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], dict[str, float]] = {}

    def seconds_of(self, cell: Cell) -> float:
        """Return the estimated seconds of one run of this cell on one thread."""
        if isinstance(cell.config, SliceConfig):
            return _slice_seconds(cell.config)
        config = cell.config
        slots = _slots_per_class(config) if find_method(config.method).summarize else 0
        settings = json.dumps(config.settings, sort_keys=True)
        chosen = config.options
        key = (config.method, chosen["dataset"], chosen["batch"], settings, slots)
        if key not in self._known:
            with using_threads(1):
                self._known[key] = _time_a_step(config)
        each = dict(self._known[key])
        images = (chosen["tasks"] or 1) * (chosen["classes_per_task"] or 10) * (chosen["images_per_class"] or 500)
        steps = images // (chosen["batch"] or 10)
        passes = chosen["epochs"] if chosen["stream"] == "iid" else 1
        repeats = chosen["repeats"] or find_method(config.method).repeats
        interval: int = config.settings.get("summarize", {"interval": 1})["interval"]
        step = each["train"] * repeats + each["store"] + each["theta"] + each["summarize"] / interval
        return steps * passes * step


def _time_a_step(config: RunConfig) -> dict[str, float]:
    """Return the seconds of one step by part: the faster of two steps, each with one repeat and one round."""
    chosen = config.options
    size = DATASETS[chosen["dataset"]].size
    timed_size = min(size, TIMED_SIZE)
    shape = (1 if chosen["dataset"] == "digits" else 3, timed_size, timed_size)
    learner = _primed_learner(config, shape)
    width, batch = chosen["classes_per_task"] or 10, chosen["batch"] or 10
    images = _images(np.random.default_rng(1), batch, shape)
    taken = []
    for _ in range(2):
        before = dict(learner.seconds)
        learner.observe(images, [index % width for index in range(batch)])
        taken.append({name: value - before[name] for name, value in learner.seconds.items()})
    shorter = min(taken, key=lambda parts: sum(parts.values()))
    return {name: value * (size / timed_size) ** 2 for name, value in shorter.items()}


def _slots_per_class(config: RunConfig) -> int:
    chosen = config.options
    classes = (chosen["tasks"] or 1) * (chosen["classes_per_task"] or 10)
    return max(1, (chosen["memory_size"] or 100) // classes)


def _primed_learner(config: RunConfig, shape: tuple[int, ...]) -> Learner:
    """Return a learner that knows the classes of a past task, holds images to replay, and summarizes at every step."""
    settings = {role: dict(own) for role, own in config.settings.items()}
    if find_method(config.method).summarize:
        settings["summarize"]["interval"] = 1
    width, slots = config.options["classes_per_task"] or 10, _slots_per_class(config)
    size = max(STORED, width * slots)
    learner = Learner(
        config.method,
        memory_size=size,
        slots_per_class=slots,
        classes_total=(config.options["tasks"] or 1) * width,
        repeats=1,
        **settings,  # type: ignore[arg-type]
    )
    rng = np.random.default_rng(0)
    labels = list(range(width))
    learner.observe(_images(rng, width, shape), labels)
    learner.boundary()
    ctx = learner._context()
    if learner.summarizer:
        queue: int = settings["summarize"]["queue"]
        raw = torch.as_tensor(_images(rng, queue * width, shape))
        learner.summarizer.push(Batch(raw / 255, torch.arange(len(raw)) % width, raw), ctx)
    fill = torch.as_tensor(_images(rng, size, shape))
    learner.policy.store(Batch(fill / 255, torch.arange(size) % width, fill), ctx)
    return learner


def _slice_seconds(config: SliceConfig) -> float:
    size = DATASETS[config.dataset].size
    channels = 1 if config.dataset == "digits" else 3
    classes = -(-config.classes // config.groups)
    real = [torch.zeros(config.real_images, channels, size, size, dtype=torch.uint8)]
    distilled = torch.zeros(config.classes * config.images_per_class, channels, size, size)
    once = dataclasses.replace(config, training_steps=1)
    with using_threads(1):
        start = perf_counter()
        Distiller(real, config, Randomness(0)).step()
        step = perf_counter() - start
        start = perf_counter()
        train_and_test(distilled, once, torch.zeros(1, channels, size, size), torch.zeros(1, dtype=torch.int64))
        training_step = perf_counter() - start
    return step * classes * config.groups * config.steps + training_step * config.training_steps


def _images(
    rng: np.random.Generator, count: int, shape: tuple[int, ...]
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return rng.integers(0, 256, (count, *shape), dtype=np.uint8)
