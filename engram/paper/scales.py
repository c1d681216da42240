"""The scales of the paper's experiments: full as published, small with less data, smoke to see that they work."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from engram.base.precision import Precision
from engram.base.settings import Settings

ScaleName = Literal["smoke", "small", "full"]


@dataclass(frozen=True)
class Protocol:
    """A stream, and the settings of the methods that it changes.

    Args:
        dataset: name of the data set.
        tasks: number of tasks.
        classes_per_task: number of classes of each task.
        images_per_class: number of training images of each class.
        summarize: changed settings of the summarizer.
        shared: changed settings by role, for every method that has a part of this role.
    """

    dataset: str
    tasks: int
    classes_per_task: int
    images_per_class: int
    summarize: Settings = field(default_factory=dict)
    shared: dict[str, Settings] = field(default_factory=dict)

    @property
    def classes(self) -> int:
        """The number of classes of the whole stream."""
        return self.tasks * self.classes_per_task


@dataclass(frozen=True)
class SliceScale:
    """The size of the slices table.

    Args:
        classes: number of classes.
        images_per_class: distilled images of each class.
        steps: distilling steps of each group.
        training_steps: training steps of the net that is tested.
    """

    classes: int
    images_per_class: int
    steps: int
    training_steps: int


@dataclass(frozen=True)
class Scale:
    """The size of the paper's experiments.

    Args:
        name: name of the scale.
        seeds: number of seeds of each cell.
        protocols: protocols by the paper's data set; columns of other data sets are left out.
        slots: images per class that the memory may hold, by data set; columns with other numbers are left out.
        fewer_repeats: divisor of the training steps on each batch, for methods that take more than two.
        epochs: number of epochs of an iid stream.
        slices: size of the slices table.
        iid_batch: images per batch of an iid stream.
        precision: numbers that the nets of every run compute in.
    """

    name: ScaleName
    seeds: int
    protocols: dict[str, Protocol]
    slots: dict[str, tuple[int, ...]]
    fewer_repeats: int
    epochs: int
    slices: SliceScale
    iid_batch: int = 128
    precision: Precision = "float32"

    @property
    def folder(self) -> str:
        """The name of the folder that holds the runs of this scale in this precision."""
        return self.name if self.precision == "float32" else f"{self.name}-{self.precision}"

    def computing_in(self, precision: Precision) -> Scale:
        """Return the same scale with nets that compute in another precision."""
        return dataclasses.replace(self, precision=precision)

    @property
    def published(self) -> bool:
        """Whether the runs have the size of the paper's."""
        return self.computing_in("float32") == FULL


ANY = tuple(range(1, 101))

_FEW_IMAGES: dict[str, Any] = {"queue": 16, "ready": 8}
_TINY: dict[str, Any] = {"queue": 4, "interval": 2, "theta_batch": 4}

FULL = Scale(
    "full",
    seeds=10,
    protocols={
        "cifar100": Protocol("cifar100", 10, 10, 500),
        "mini-imagenet": Protocol("mini-imagenet", 10, 10, 500),
        "tiny-imagenet": Protocol("tiny-imagenet", 20, 10, 500),
    },
    slots=dict.fromkeys(("cifar100", "mini-imagenet", "tiny-imagenet"), ANY),
    fewer_repeats=1,
    epochs=50,
    slices=SliceScale(100, 50, 1000, 1000),
)
SMALL = Scale(
    "small",
    seeds=3,
    protocols={
        "cifar100": Protocol("cifar100", 3, 10, 300),
        "mini-imagenet": Protocol("mini-imagenet", 2, 10, 50, summarize=_FEW_IMAGES),
        "tiny-imagenet": Protocol("tiny-imagenet", 3, 10, 100, summarize=_FEW_IMAGES),
    },
    slots={"cifar100": (1, 5, 10, 20, 50), "mini-imagenet": (1,), "tiny-imagenet": (1,)},
    fewer_repeats=2,
    epochs=10,
    slices=SliceScale(30, 5, 50, 300),
)
SMOKE = Scale(
    "smoke",
    seeds=1,
    protocols={
        "cifar100": Protocol("digits", 2, 2, 20, summarize=_TINY, shared={"net": {"width": 8}, "theta": {"width": 4}})
    },
    slots={"cifar100": (1, 5, 20)},
    fewer_repeats=5,
    epochs=1,
    slices=SliceScale(4, 1, 2, 3),
    iid_batch=16,
)
SCALES: dict[ScaleName, Scale] = {scale.name: scale for scale in (SMOKE, SMALL, FULL)}
