"""What was measured: end accuracy and time of a step by method, pictures and limit; and bytes of a picture.

measured.json is made from the files under results/ by `make docs-results`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

RAW_CHANNELS = 3


@dataclass(frozen=True)
class MeasuredRun:
    """Runs of one method in one setting.

    Args:
        data: name of the data set.
        image_size: pixels per side of its images.
        tasks: number of tasks.
        classes: classes of all tasks together.
        images_per_class: images of each class that were seen.
        memory_bytes: limit of the memory.
        method: name of the method.
        codec: how images were stored.
        repeats: training steps on a batch of ten images.
        accuracy: mean accuracy over all tasks at the end, in percent; the mean over seeds.
        seeds: number of runs.
        milliseconds: training time of a batch, on one core in the precision below.
        precision: numbers that the net computed with.
        file: where the results are.
    """

    data: str
    image_size: int
    tasks: int
    classes: int
    images_per_class: int
    memory_bytes: int
    method: str
    codec: str
    repeats: int
    accuracy: float
    seeds: int
    milliseconds: float
    precision: str
    file: str

    @property
    def raw_images_per_class(self) -> float:
        """How many images of each class the memory would hold as they are."""
        return raw_images_per_class(self.memory_bytes, self.classes, self.image_size)

    def setting(self) -> tuple[Any, ...]:
        """Return what runs must share to be compared."""
        return self.data, self.image_size, self.tasks, self.classes, self.images_per_class, self.memory_bytes


def raw_images_per_class(memory_bytes: int, classes: int, image_size: int) -> float:
    """Return how many images of each class fit, as one byte per value."""
    return memory_bytes / (classes * RAW_CHANNELS * image_size**2)


@cache
def measured_runs() -> tuple[MeasuredRun, ...]:
    """Return all measured runs."""
    return tuple(MeasuredRun(**run) for run in _table()["runs"])


def picture_bytes(codec: str, image_size: int) -> float:
    """Return the mean bytes of a photo in a codec: in proportion to its pixels between and beyond measured sizes."""
    by_size = {int(size): bytes_ for size, bytes_ in _table()["bytes"][codec].items()}
    nearest = min(by_size, key=lambda size: abs(math.log(size / image_size)))
    return float(by_size[nearest] * (image_size / nearest) ** 2)


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads((files("engram.recommending") / "measured.json").read_text(encoding="utf-8"))
    return table
