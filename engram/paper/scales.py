"""How large the paper's experiments are run: as published, on the small protocol, or just to see them work."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from engram.methods import Settings

ScaleName = Literal["smoke", "small", "full"]


@dataclass(frozen=True)
class Protocol:
    """A stream, and what of the methods' settings it changes."""

    dataset: str
    tasks: int
    classes_per_task: int
    images_per_class: int
    summarize: Settings = field(default_factory=dict)
    shared: dict[str, Settings] = field(default_factory=dict)
    """Settings of any method that has such a part."""

    @property
    def classes(self) -> int:
        return self.tasks * self.classes_per_task


@dataclass(frozen=True)
class SliceScale:
    """Classes, distilled images of each, steps of distilling a group and of training the net that is tested."""

    classes: int
    images_per_class: int
    steps: int
    training_steps: int


@dataclass(frozen=True)
class Scale:
    """Args:
    name: what it is called.
    seeds: of each cell.
    protocols: by data set of the paper; a data set that is missing is left out.
    slots: images a class the memory may hold; a data set's columns beyond them are left out.
    fewer_repeats: training steps on a stream batch are divided by this, where they are more than two.
    epochs: of an iid stream.
    iid_batch: images of its batches.
    slices: of the slices table.
    """

    name: ScaleName
    seeds: int
    protocols: dict[str, Protocol]
    slots: dict[str, tuple[int, ...]]
    fewer_repeats: int
    epochs: int
    slices: SliceScale
    iid_batch: int = 128


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
