"""How long a plan will take, from two timed steps of each method on this machine."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np
import torch

from engram.core import Batch, Randomness
from engram.experiment.config import RunConfig, resolved
from engram.learner import Learner
from engram.methods import find, settings_of
from engram.paper.grid import Cell
from engram.paper.slices import Distiller, SliceConfig, train_and_test
from engram.streams import DATASETS
from engram.summarize import StreamSummarizer

SUMMARIZING = settings_of(StreamSummarizer)
TIMED_SIZE = 32
"""Pixels a side of the images a step is timed on; larger ones take more in proportion to their pixels, and might take
more memory than there is."""
STORED = 200
"""Images put into the memory for timing; a step replays no more than 100."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Runs of a sweep have one thread each."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Stopwatch:
    """Times one step, and one round of summarizing, of each method it meets."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], dict[str, float]] = {}

    def seconds_of(self, cell: Cell) -> float:
        """Of one run of this cell on one thread, roughly."""
        if isinstance(cell.config, SliceConfig):
            return _slice_seconds(cell.config)
        config = resolved(cell.config)
        slots = _slots_per_class(config) if find(config.method).summarize else 0
        settings = json.dumps(config.settings, sort_keys=True)
        key = (config.method, config.dataset, config.batch, settings, slots)
        if key not in self._known:
            with one_thread():
                self._known[key] = _time_a_step(config)
        each = dict(self._known[key])
        images = (config.tasks or 1) * (config.classes_per_task or 10) * (config.images_per_class or 500)
        steps = images // (config.batch or 10)
        passes = config.epochs if config.stream == "iid" else 1
        repeats = config.repeats or find(config.method).repeats
        interval: int = {**SUMMARIZING, **config.settings.get("summarize", {})}["interval"]
        step = each["train"] * repeats + each["store"] + each["theta"] + each["summarize"] / interval
        return steps * passes * step


def _time_a_step(config: RunConfig) -> dict[str, float]:
    """Seconds by part of one step on a batch, the shorter of two, trained on once; every step of it summarizes."""
    size = DATASETS[config.dataset].size
    timed_size = min(size, TIMED_SIZE)
    shape = (1 if config.dataset == "digits" else 3, timed_size, timed_size)
    learner = _primed_learner(config, shape)
    width, batch = config.classes_per_task or 10, config.batch or 10
    images = _images(np.random.default_rng(1), batch, shape)
    taken = []
    for _ in range(2):
        before = dict(learner.seconds)
        learner.observe(images, [index % width for index in range(batch)])
        taken.append({name: value - before[name] for name, value in learner.seconds.items()})
    shorter = min(taken, key=lambda parts: sum(parts.values()))
    return {name: value * (size / timed_size) ** 2 for name, value in shorter.items()}


def _slots_per_class(config: RunConfig) -> int:
    classes = (config.tasks or 1) * (config.classes_per_task or 10)
    return max(1, (config.memory_size or 100) // classes)


def _primed_learner(config: RunConfig, shape: tuple[int, ...]) -> Learner:
    """Knows a past task's classes, holds images to replay, and summarizes at every step."""
    settings = {room: dict(own) for room, own in config.settings.items()}
    if find(config.method).summarize:
        settings["summarize"] = settings.get("summarize", {}) | {"interval": 1}
    width, slots = config.classes_per_task or 10, _slots_per_class(config)
    size = max(STORED, width * slots)
    learner = Learner(
        config.method,
        memory_size=size,
        slots_per_class=slots,
        classes_total=(config.tasks or 1) * width,
        repeats=1,
        **settings,  # type: ignore[arg-type]
    )
    rng = np.random.default_rng(0)
    labels = list(range(width))
    learner.observe(_images(rng, width, shape), labels)
    learner.boundary()
    ctx = learner._context()
    if learner.summarizer:
        queue: int = {**SUMMARIZING, **settings["summarize"]}["queue"]
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
    with one_thread():
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
