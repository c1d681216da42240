"""Learners that the bench measures: in the middle of a stream, so that every step does what a typical step does."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from engram.base.batch import Batch
from engram.base.precision import Precision
from engram.learner import Learner
from engram.summarize import StreamSummarizer

SIZE = 32
CLASSES = 10
MODES: dict[str, dict[str, Any]] = {
    "exact": {},
    "exact bf16": {"precision": "bf16"},
    "fast": {"summarize": {"fast": True}},
    "features": {"summarize": {"matching": "features"}},
    "features bf16": {"summarize": {"matching": "features"}, "precision": "bf16"},
}
"""Ways to summarize: options of the learner that differ from the default."""


def replaying_learner(method: str, replay: int, precision: Precision, generator: torch.Generator) -> Learner:
    """Return a learner whose memory holds as many images as it replays; the first batch fills it."""
    learner = Learner(method, memory_size=replay, seed=0, device="cpu", precision=precision, scheme={"replay": replay})
    learner.observe(random_images(replay, generator), [index % CLASSES for index in range(replay)])
    return learner


def summarizing_learner(mode: str, slots: int, generator: torch.Generator) -> Learner:
    """Return a learner in the middle of its second task: queues full, slots claimed, a round after every batch.

    Its net replays only one image per step, because only summarizing is timed.
    """
    chosen = dict(MODES[mode])
    settings = {"interval": 1, "theta_interval": 1} | chosen.pop("summarize", {})
    learner = Learner(
        "scr+ssd",
        device="cpu",
        memory_size=2 * CLASSES * slots + CLASSES,
        slots_per_class=slots,
        seed=0,
        boundary_gap=1,
        scheme={"replay": 1},
        summarize=settings,
        **chosen,
    )
    for first in (0, CLASSES):
        labels = [first + index % CLASSES for index in range(CLASSES * slots)]
        learner.observe(random_images(len(labels), generator), labels)
    summarizer = _summarizer(learner)
    queued = CLASSES * summarizer.queue.capacity
    current = torch.arange(queued) % CLASSES + CLASSES
    summarizer.queue.push(Batch(torch.rand(queued, 3, SIZE, SIZE, generator=generator), current))
    return learner


def _summarizer(learner: Learner) -> StreamSummarizer:
    assert isinstance(learner.summarizer, StreamSummarizer)
    return learner.summarizer


def time_round(learner: Learner, theta: list[float]) -> float:
    """Return the seconds of one summarizing round, and append the seconds of training θ to `theta`."""
    before = dict(learner.seconds)
    x = random_images(CLASSES, torch.Generator().manual_seed(learner.iteration))
    rounds = learner.rounds
    learner.observe(x, list(range(CLASSES, 2 * CLASSES)))
    assert learner.rounds == rounds + 1, "there must be a round after every batch"
    theta.append(learner.seconds["theta"] - before["theta"])
    return learner.seconds["summarize"] - before["summarize"]


def random_images(count: int, generator: torch.Generator) -> np.ndarray[Any, Any]:
    """Return uint8 images of noise."""
    return torch.randint(256, (count, 3, SIZE, SIZE), generator=generator, dtype=torch.uint8).numpy()
