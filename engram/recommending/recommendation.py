"""Choose from the measured runs that are nearest to what is asked.

A setting is near if about as many raw images per class fit its memory, and if it has about as many classes and pixels.
Among the runs of the nearest setting the most accurate wins that takes no more steps than allowed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from PIL import features

from engram.base.errors import InputError
from engram.base.sizes import parse_bytes
from engram.memory import AutoQuality
from engram.memory.encoding_anew import ENOUGH_IMAGES
from engram.recommending.measured import MeasuredRun, measured_runs, picture_bytes, raw_images_per_class

USUAL_STEPS = 2
"""Steps on a batch if no time is given: what twice as many add is less than what they cost."""


@dataclass(frozen=True)
class Choice:
    """One number of steps on each batch, and what it brings.

    Args:
        repeats: training steps on each batch.
        accuracy: end accuracy in percent in the nearest setting that was measured.
        milliseconds: estimated time of a batch of ten on one core.
    """

    repeats: int
    accuracy: float
    milliseconds: float


@dataclass(frozen=True)
class Recommendation:
    """What to use for a limit, and why.

    Examples:
        >>> from engram import Learner, recommend
        >>> found = recommend("300KB", classes=100)
        >>> learner = Learner(**found.arguments)

    Args:
        method: name of the method.
        memory_bytes: limit of the memory.
        codec: how images are stored.
        quality: quality of the pictures once all classes have come.
        repeats: training steps on each batch.
        pictures: number of pictures that fit, about.
        classes: number of classes.
        choices: what other numbers of steps bring, by number.
        nearest: the measured run that this is based on.
        files: the files under results/ that were used.
    """

    method: str
    memory_bytes: int
    codec: str
    quality: int
    repeats: int
    pictures: int
    classes: int
    choices: tuple[Choice, ...]
    nearest: MeasuredRun
    files: tuple[str, ...]

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `Learner`."""
        return {
            "method": self.method,
            "memory_bytes": self.memory_bytes,
            "codec": self.codec,
            "repeats": self.repeats,
        }


def recommend(
    memory_bytes: int | str, *, classes: int, image_size: int = 32, seconds: float | None = None
) -> Recommendation:
    """Return what to use for a limit in bytes.

    Examples:
        >>> from engram import recommend
        >>> found = recommend("300KB", classes=100)
        >>> found.method, found.codec, found.quality
        ('er-ema', 'avif(auto)', 35)

    Args:
        memory_bytes: limit of the encoded images, such as 300000 or "300KB".
        classes: number of classes that will have come in the end.
        image_size: pixels per side of the images.
        seconds: time that a batch of ten images may take on one core, if it matters. The largest number of steps that
            fits is chosen, or the smallest number that was measured if none does.
    """
    limit = parse_bytes(memory_bytes)
    for name, value, least in (("classes", classes, 1), ("image_size", image_size, 16)):
        if value < least:
            raise InputError(f"{name} is {value}: give at least {least}")
    if seconds is not None and not seconds > 0:
        raise InputError(f"seconds is {seconds}: give a time above 0")
    codec, quality = _pictures(limit, classes, image_size)
    pictures = int(limit / picture_bytes(f"{codec.partition('(')[0]}({quality})", image_size))
    if not pictures:
        raise InputError(f"memory_bytes is {limit}: not even one picture of {image_size} pixels a side fits")
    near = _nearest_setting(limit, classes, image_size)
    best = max(near, key=lambda run: run.accuracy)
    choices = _choices([run for run in near if run.method == best.method], image_size)
    repeats = _affordable(choices, seconds)
    nearest = max((run for run in near if run.method == best.method and run.repeats == repeats), key=_accuracy)
    return Recommendation(
        best.method,
        limit,
        codec,
        quality,
        repeats,
        pictures,
        classes,
        choices,
        nearest,
        tuple(sorted({run.file for run in near})),
    )


def _pictures(limit: int, classes: int, image_size: int) -> tuple[str, int]:
    """Return the codec, and the quality it will have come down to when all classes are there."""
    if not features.check("avif"):
        return "webp(50)", 50
    for quality in AutoQuality.qualities[:-1]:
        if limit / picture_bytes(f"avif({quality})", image_size) >= ENOUGH_IMAGES * classes:
            return AutoQuality.name, quality
    return AutoQuality.name, AutoQuality.qualities[-1]


def _nearest_setting(limit: int, classes: int, image_size: int) -> list[MeasuredRun]:
    """Return the runs of the setting that is nearest to what is asked."""
    room = raw_images_per_class(limit, classes, image_size)

    def distance(run: MeasuredRun) -> float:
        asked_over_run = room / run.raw_images_per_class, classes / run.classes, image_size / run.image_size
        return sum(abs(math.log2(ratio)) for ratio in asked_over_run)

    nearest = min(measured_runs(), key=distance)
    return [run for run in measured_runs() if run.setting() == nearest.setting()]


def _choices(runs: list[MeasuredRun], image_size: int) -> tuple[Choice, ...]:
    """Return the best of the runs for each number of steps, their times scaled to the pixels of an image."""
    best: dict[int, MeasuredRun] = {}
    for run in sorted(runs, key=_accuracy):
        best[run.repeats] = run
    return tuple(
        Choice(repeats, run.accuracy, run.milliseconds * (image_size / run.image_size) ** 2)
        for repeats, run in sorted(best.items())
    )


def _affordable(choices: tuple[Choice, ...], seconds: float | None) -> int:
    if seconds is not None:
        return max([c.repeats for c in choices if c.milliseconds <= 1000 * seconds], default=choices[0].repeats)
    counts = [choice.repeats for choice in choices]
    return USUAL_STEPS if USUAL_STEPS in counts else counts[0]


def _accuracy(run: MeasuredRun) -> float:
    return run.accuracy
