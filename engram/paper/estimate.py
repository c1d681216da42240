"""How long a plan will take, from a few timed steps of each method on this machine."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from engram.core import Batch, Randomness
from engram.experiment.run import RunConfig
from engram.learner import Learner
from engram.paper.grid import Cell
from engram.paper.slices import SliceConfig, distil
from engram.streams import DATASETS

TIMED_STEPS = 2
MOST_STORED = 200
"""Images put into the memory for timing; a step replays no more than 100."""


def seconds_of(cell: Cell) -> float:
    """Of one run of this cell on one thread, roughly."""
    if isinstance(cell.config, SliceConfig):
        return _slice_seconds(cell.config)
    config = cell.config
    shape = (1 if config.dataset == "digits" else 3, *[DATASETS[config.dataset].size] * 2)
    learner = _primed_learner(config, shape)
    rng = np.random.default_rng(0)
    width = config.classes_per_task or 10
    batch = config.batch or 10
    for key in learner.seconds:
        learner.seconds[key] = 0.0
    rounds = learner.rounds
    for _ in range(TIMED_STEPS):
        learner.observe(_images(rng, batch, shape), [index % width for index in range(batch)])
    steps = (config.tasks or 1) * width * (config.images_per_class or 500) // batch
    passes = config.epochs if config.stream == "iid" else 1
    each = {name: value / TIMED_STEPS for name, value in learner.seconds.items()}
    summarizing = each.pop("summarize")
    interval = config.settings.get("summarize", {}).get("interval", 6)
    share = 1 / interval if learner.rounds > rounds else 0.0
    return steps * passes * (sum(each.values()) + summarizing * share)


def _primed_learner(config: RunConfig, shape: tuple[int, ...]) -> Learner:
    """Knows a task's classes, holds images to replay, and summarizes at every step."""
    settings = {room: dict(own) for room, own in config.settings.items()}
    if "+ssd" in config.method:
        settings["summarize"] = settings.get("summarize", {}) | {"interval": 1}
    size = min(config.memory_size or 100, MOST_STORED)
    width = config.classes_per_task or 10
    learner = Learner(
        config.method,
        memory_size=max(size, width),
        slots_per_class=max(1, (config.memory_size or 100) // ((config.tasks or 1) * width)),
        repeats=config.repeats,
        **settings,  # type: ignore[arg-type]
    )
    rng = np.random.default_rng(0)
    labels = list(range(width))
    learner.observe(_images(rng, width, shape), labels)
    ctx = learner._context()
    if learner.summarizer:
        queue = settings["summarize"].get("queue", 64)
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
    start = perf_counter()
    distil(real, dataclasses.replace(config, steps=1), Randomness(0))
    return (perf_counter() - start) * classes * config.groups * config.steps


def measured_seconds(cell: Cell, root: Path, seeds: int) -> list[float]:
    """Of the finished runs of this cell."""
    files = [root / cell.folder(seed) / "result.json" for seed in range(seeds)]
    return [float(json.loads(file.read_text())["seconds"]["total"]) for file in files if file.is_file()]


def _images(
    rng: np.random.Generator, count: int, shape: tuple[int, ...]
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return rng.integers(0, 256, (count, *shape), dtype=np.uint8)
