"""Estimates of how long a plan will take, from steps of each method that are timed on this machine.

A step of the paper takes seconds and gigabytes. So each method is timed with small images and narrow nets. What that
leaves out is measured once: how many times longer a pass through the net takes at its real width and image size.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

import numpy as np
import torch

from engram.base.batch import Batch
from engram.base.devices import using_threads
from engram.base.rng import Randomness
from engram.experiment.config import RunConfig
from engram.learner import Learner
from engram.methods import find_method
from engram.nets import ConvNet, ReducedResNet18
from engram.paper.grid import Cell
from engram.paper.slices import Distiller, SliceConfig, train_and_test
from engram.streams import DATASETS

M = TypeVar("M")

TIMED_SIZE = 16
"""Pixels per side of the images that a step is timed on."""
TIMED_WIDTHS = {"net": 8, "theta": 64}
"""Most channels of the nets that a step is timed with."""
TIMED_REPLAY = 32
"""Most images that are replayed in a step that is timed. Training takes time in proportion to its images."""
NET_OF = {"train": "net", "store": "net", "theta": "theta", "summarize": "theta"}
"""The net that most of a part's time goes into."""
PASS_SIZE, PASS_IMAGES = 32, 20
"""Most pixels per side, and number, of the images that a pass through a net is timed on. The time of larger images is
scaled by their number of pixels."""
ENOUGH_SECONDS, MOST_TIMES = 0.5, 10
"""A step or pass is timed again until so much time was spent, or so often; the fastest counts."""
STORED = 200
"""Least number of images put into the memory for timing; a step replays at most 100."""


class Stopwatch:
    """Estimates the seconds of runs. It times each method and each net once, and remembers the results.

    Args:
        on_timing: called with the name of a method or row before it is timed.
    """

    def __init__(self, on_timing: Callable[[str], None] = lambda what: None) -> None:
        self.on_timing = on_timing
        self._steps: dict[str, dict[str, float]] = {}
        self._passes: dict[tuple[str, int, int], float] = {}

    def seconds_of(self, cell: Cell) -> float:
        """Return the estimated seconds of one run of this cell on one thread."""
        if isinstance(cell.config, SliceConfig):
            self.on_timing(cell.row)
            return _slice_seconds(cell.config) * self._scale("theta", cell.config.width, cell.config.dataset)
        config = cell.config
        small, summarizing = _small(config), find_method(config.method).summarize is not None
        key = json.dumps(
            [small.method, small.settings, small.options["batch"], summarizing and _slots_per_class(config)]
        )
        if key not in self._steps:
            self.on_timing(config.method)
            self._steps[key] = _time_a_step(small)
        chosen = config.options
        each = dict(self._steps[key])
        for part, role in NET_OF.items():
            if role in config.settings:
                each[part] *= self._scale(role, config.settings[role]["width"], chosen["dataset"])
        each["train"] *= _images_per_step(config) / _images_per_step(small)
        images = (chosen["tasks"] or 1) * (chosen["classes_per_task"] or 10) * (chosen["images_per_class"] or 500)
        steps = images // (chosen["batch"] or 10)
        passes = chosen["epochs"] if chosen["stream"] == "iid" else 1
        repeats = chosen["repeats"] or find_method(config.method).repeats
        interval: int = config.settings.get("summarize", {"interval": 1})["interval"]
        step = each["train"] * repeats + each["store"] + each["theta"] + each["summarize"] / interval
        return steps * passes * step

    def _scale(self, role: str, width: int, dataset: str) -> float:
        """Return how many times longer a pass through a net takes in a run than while steps are timed."""
        size = DATASETS[dataset].size
        at = min(size, PASS_SIZE)
        small = self._pass(role, min(width, TIMED_WIDTHS[role]), TIMED_SIZE)
        return self._pass(role, width, at) / small * (size / at) ** 2

    def _pass(self, role: str, width: int, size: int) -> float:
        key = (role, width, size)
        if key not in self._passes:
            self._passes[key] = _time_a_pass(*key)
        return self._passes[key]


def _time_a_pass(role: str, width: int, size: int) -> float:
    """Return the seconds of a forward and a backward pass."""
    images = torch.rand(PASS_IMAGES, 3, size, size, generator=torch.Generator().manual_seed(0))
    if role == "net":
        forward: Callable[[torch.Tensor], torch.Tensor] = ReducedResNet18(3, size, width)
        images = images.contiguous(memory_format=torch.channels_last)
    else:
        forward = ConvNet(3, size, width).features
    return _shortest(lambda: forward(images).sum().backward())


def _small(config: RunConfig) -> RunConfig:
    """Return a configuration with narrow nets and little replay, whose steps are timed."""
    most = {role: {"width": width} for role, width in TIMED_WIDTHS.items()} | {"scheme": {"replay": TIMED_REPLAY}}
    changed = {
        role: {name: min(own[name], limits[name]) if name in limits else own[name] for name in own}
        for role, limits in most.items()
        if (own := config.settings.get(role))
    }
    return config.replace(settings=config.settings | changed)


def _images_per_step(config: RunConfig) -> int:
    replayed: int = config.settings["scheme"].get("replay", 0)
    return (config.options["batch"] or 10) + replayed


def _time_a_step(config: RunConfig) -> dict[str, float]:
    """Return the seconds of one step by part: the fastest of some steps, each with one repeat and one round."""
    chosen = config.options
    shape = (1 if chosen["dataset"] == "digits" else 3, TIMED_SIZE, TIMED_SIZE)
    width, batch = chosen["classes_per_task"] or 10, chosen["batch"] or 10
    images = _images(np.random.default_rng(1), batch, shape)
    with using_threads(1):
        learner = _primed_learner(config, shape)

        def step() -> dict[str, float]:
            before = dict(learner.seconds)
            learner.observe(images, [index % width for index in range(batch)])
            return {name: value - before[name] for name, value in learner.seconds.items()}

        return min(_repeated(step), key=lambda parts: sum(parts.values()))


def _repeated(measure: Callable[[], M]) -> list[M]:
    """Return what `measure` returned when called at least twice, and more often if that is quick."""
    start, found = perf_counter(), [measure(), measure()]
    while len(found) < MOST_TIMES and perf_counter() - start < ENOUGH_SECONDS:
        found.append(measure())
    return found


def _shortest(work: Callable[[], object]) -> float:
    """Return the seconds that some work takes at its fastest, on one thread."""

    def measure() -> float:
        start = perf_counter()
        work()
        return perf_counter() - start

    with using_threads(1):
        return min(_repeated(measure))


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
    """Return the seconds of a slice job with small images and a narrow net."""
    channels = 1 if config.dataset == "digits" else 3
    classes = -(-config.classes // config.groups)
    config = dataclasses.replace(config, width=min(config.width, TIMED_WIDTHS["theta"]))
    real = [torch.zeros(config.real_images, channels, TIMED_SIZE, TIMED_SIZE, dtype=torch.uint8)]
    distilled = torch.zeros(config.classes * config.images_per_class, channels, TIMED_SIZE, TIMED_SIZE)
    once = dataclasses.replace(config, training_steps=1)
    test = torch.zeros(1, channels, TIMED_SIZE, TIMED_SIZE), torch.zeros(1, dtype=torch.int64)
    distiller = Distiller(real, config, Randomness(0))
    step = _shortest(distiller.step)
    training_step = _shortest(lambda: train_and_test(distilled, once, *test))
    return step * classes * config.groups * config.steps + training_step * config.training_steps


def _images(
    rng: np.random.Generator, count: int, shape: tuple[int, ...]
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return rng.integers(0, 256, (count, *shape), dtype=np.uint8)
