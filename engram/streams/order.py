"""Class-incremental streams: the classes of a data set are divided into tasks, and each image is delivered once.

The kinds of streams:

- *paper*: batches are as class-balanced as the images allow. If a task has as many classes as a batch has images, each
  batch has one image of each class. Only full batches are delivered.
- *paper-shuffled*: images are shuffled within a task, and only full batches are delivered. The paper uses this stream
  for methods without a class-balanced sampler.
- *strict*: images are shuffled within a task. The last batch of a task may be partial.
- *blurry(p)*: like strict, but a share p of the images of each task comes from the classes of other tasks.
- *imbalanced(r)*: like strict, but the classes have different numbers of images. The rarest class has r times fewer
  images than the most common one.
- *iid*: all classes are in one task, which is shuffled again in each of many epochs. Only full batches are delivered.
  This is not continual learning, but its upper bound.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict, Unpack

import numpy as np

from engram.base.naming import suggest
from engram.base.settings import Count, Default, resolve
from engram.streams.adapters import to_dataset
from engram.streams.dataset import Array, DataError, Dataset

ORDERS = ("strict", "paper", "paper-shuffled", "iid", "blurry", "imbalanced")
DEFAULTS = {"blurry": 0.1, "imbalanced": 50.0}
"""Numbers of the kinds of streams that take a number, if none is given."""


@dataclass(frozen=True)
class Scenario:
    """A kind of stream, and its number if it has one.

    Args:
        kind: one of `ORDERS`.
        value: the share of a blurry stream, or the ratio of an imbalanced one.
    """

    kind: str
    value: float = 0.0

    @staticmethod
    def parse(text: str) -> Scenario:
        """Return the scenario of a name such as "strict", "blurry(0.1)" or "imbalanced" (short for imbalanced(50))."""
        match = re.fullmatch(r"([\w-]+)(?:\(([\d.]+)\))?", text)
        if not match or match[1] not in ORDERS:
            name = match[1] if match else text
            raise DataError(f"unknown stream {text!r}{suggest(name, list(ORDERS))}")
        kind, number = match[1], match[2]
        if kind not in DEFAULTS:
            if number is not None:
                raise DataError(f"stream {text!r}: {kind} takes no number, so leave it out")
            return Scenario(kind)
        try:
            value = float(number) if number is not None else DEFAULTS[kind]
        except ValueError:
            raise DataError(f"stream {text!r}: {number!r} is not a number") from None
        if kind == "blurry" and not 0 < value < 1:
            raise DataError(f"stream {text!r}: the share of images of other tasks must be between 0 and 1")
        if kind == "imbalanced" and value < 1:
            raise DataError(f"stream {text!r}: the ratio of the most common class to the rarest must be at least 1")
        return Scenario(kind, value)

    @property
    def name(self) -> str:
        """The name that `parse` takes, including the number."""
        return f"{self.kind}({self.value:g})" if self.kind in DEFAULTS else self.kind

    @property
    def published(self) -> bool:
        """Whether the paper uses it: only full batches, and the number of classes is known in advance."""
        return self.kind in ("paper", "paper-shuffled", "iid")

    @property
    def bounded(self) -> bool:
        """Whether the learner is told when a task ends."""
        return self.kind in ("paper", "paper-shuffled")


@dataclass(frozen=True)
class Task:
    """A part of a stream with its own classes.

    Args:
        classes: indices of the classes.
        batches: indices of the training images, one array per batch.
        test: indices of the test images of the classes.
    """

    classes: tuple[int, ...]
    batches: tuple[Array, ...]
    test: Array


@dataclass(frozen=True)
class TaskStream:
    """A sequence of tasks. Iterating over it yields the batches of all tasks, as images and labels.

    Labels are the names of the classes, or their numbers if the data set has no names.

    Args:
        dataset: the images and their labels.
        order: name of the kind of stream, as `Scenario.parse` takes it.
        tasks: the tasks in the order in which they are learned.
    """

    dataset: Dataset
    order: str
    tasks: tuple[Task, ...]

    @property
    def batch_count(self) -> int:
        """The number of batches in all tasks."""
        return sum(len(task.batches) for task in self.tasks)

    @property
    def class_count(self) -> int:
        """The number of classes in all tasks."""
        return sum(len(task.classes) for task in self.tasks)

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        """Yield the images and labels of each batch, task by task."""
        for task in self.tasks:
            yield from self.batches(task)

    def batches(self, task: Task, start: int = 0) -> Iterator[tuple[Array, Array]]:
        """Yield the images and labels of each batch of a task, beginning with batch number `start`."""
        for indices in task.batches[start:]:
            yield self.dataset.train_x[indices], self.dataset.labels_of(self.dataset.train_y[indices])

    def digest(self) -> str:
        """Return a hash of the order in which images arrive, and of their labels."""
        digest = hashlib.sha256(np.ascontiguousarray(self.dataset.train_y, "<i8").tobytes())
        for task in self.tasks:
            for indices in task.batches:
                digest.update(np.ascontiguousarray(indices, "<i8").tobytes())
        return digest.hexdigest()

    def test(self, task: Task) -> tuple[Array, Array]:
        """Return the test images and labels of a task."""
        return self.dataset.test_x[task.test], self.dataset.labels_of(self.dataset.test_y[task.test])


class StreamOptions(TypedDict, total=False):
    """Options of making a stream from a data set."""

    stream: Annotated[
        str | None,
        Default(None),
        (
            "Kind of stream: paper (class-balanced, full batches only), paper-shuffled (shuffled, full batches only), "
            "strict (shuffled, every image), blurry(P) (a share P of each task's images comes from other tasks), "
            "imbalanced(R) (the rarest class has R times fewer images than the most common one) or iid (all classes "
            "together, many epochs). If not given: strict; in a run, the stream of the method."
        ),
    ]
    batch: Annotated[
        Count | None,
        Default(None),
        "Number of images in a stream batch; if not given, 10, or 128 for an iid stream.",
    ]
    tasks: Annotated[
        Count | None,
        Default(None),
        "Number of tasks; if not given, enough to use all classes.",
    ]
    classes_per_task: Annotated[
        Count | None,
        Default(None),
        "Number of classes in a task; if not given, 10, or 2 if the data set has at most ten classes.",
    ]
    images_per_class: Annotated[
        Count | None,
        Default(None),
        "Use only the first so many training images of each class; if not given, all.",
    ]
    epochs: Annotated[
        Count,
        Default(50),
        "Number of times that an iid stream shows each image.",
    ]
    class_order: Annotated[
        Literal["seed", "fixed"],
        Default("seed"),
        "Order of the classes: drawn with the seed (seed), or as the data set numbers them (fixed).",
    ]
    instance_order: Annotated[
        Literal["shuffled", "kept"],
        Default("shuffled"),
        "Order of the images of a class: shuffled, or as in the data set (kept).",
    ]


def default_batch(scenario: Scenario) -> int:
    """Return the number of images in a batch of this kind of stream, if none is given."""
    return 128 if scenario.kind == "iid" else 10


def class_incremental(dataset: Any, seed: int = 0, *, test: Any = None, **options: Unpack[StreamOptions]) -> TaskStream:
    """Divide a data set into tasks with their own classes, and return the stream of these tasks.

    Examples:
        >>> from engram import class_incremental, load_dataset
        >>> stream = class_incremental(load_dataset("digits"), seed=0, tasks=2, images_per_class=20)
        >>> [len(task.classes) for task in stream.tasks], stream.batch_count
        ([2, 2], 8)

    Args:
        dataset: the images and their labels: a `Dataset`, a pair `(x, y)`, a torch data set or a Hugging Face data set
            (see `to_dataset`).
        seed: seed of the order of classes and images.
        test: the test images, if `dataset` has none, in one of these forms; if not given, the last of each class.
        options: `StreamOptions`, by name.
    """
    dataset = to_dataset(dataset, test)
    chosen: Any = resolve(StreamOptions, options)
    scenario = Scenario.parse(chosen["stream"] or "strict")
    total = len(dataset.class_names)
    width = chosen["classes_per_task"] or (10 if total > 10 else 2)
    count, batch = chosen["tasks"] or -(-total // width), chosen["batch"] or default_batch(scenario)
    if chosen["tasks"] is not None and count * width > total:
        raise DataError(
            f"{count} tasks of {width} classes need {count * width} classes, but {dataset.name} has {total}"
        )
    kept = chosen["instance_order"] == "kept"
    if kept and scenario.kind == "iid":
        raise DataError("an iid stream shuffles all images: use instance_order='shuffled' with it")
    rng = np.random.default_rng([seed, 0])
    classes = (rng.permutation(total) if chosen["class_order"] == "seed" else np.arange(total))[: count * width]
    rows = [classes] if scenario.kind == "iid" else [classes[at : at + width] for at in range(0, len(classes), width)]
    members = _members(dataset, classes, scenario, chosen["images_per_class"], rng)
    passes = chosen["epochs"] if scenario.kind == "iid" else 1
    if scenario.kind == "blurry":
        arrivals = _blurred([[members[label] for label in row] for row in rows], scenario.value, rng)
    else:
        arrivals = [_arrival([members[label] for label in row], scenario, passes, rng) for row in rows]
    if kept:
        arrivals = _in_dataset_order(arrivals, dataset)
    return TaskStream(
        dataset,
        scenario.name,
        tuple(_task(dataset, row, its, scenario, batch) for row, its in zip(rows, arrivals, strict=True)),
    )


def _members(
    dataset: Dataset, classes: Array, scenario: Scenario, images_per_class: int | None, rng: np.random.Generator
) -> dict[int, Array]:
    """Return the indices of the training images that are used of each class."""
    members = {int(label): np.flatnonzero(dataset.train_y == label)[:images_per_class] for label in classes}
    if empty := [dataset.class_names[label] for label, own in members.items() if not len(own)]:
        raise DataError(f"class {empty[0]!r} of {dataset.name} has no training image: add some, or leave the class out")
    if scenario.kind != "imbalanced":
        return members
    steps = max(1, len(classes) - 1)
    ranks = rng.permutation(len(classes))
    return {
        label: own[: max(1, round(len(own) * scenario.value ** (-rank / steps)))]
        for rank, (label, own) in zip(ranks.tolist(), members.items(), strict=True)
    }


def _arrival(members: list[Array], scenario: Scenario, passes: int, rng: np.random.Generator) -> list[Array]:
    """Return the images of a task in the order in which they arrive, one array per pass."""
    members = [rng.permutation(own) for own in members]
    if scenario.kind == "paper":
        return [_interleaved(members, rng) for _ in range(passes)]
    return [rng.permutation(np.concatenate(members)) for _ in range(passes)]


def _blurred(tasks: list[list[Array]], share: float, rng: np.random.Generator) -> list[list[Array]]:
    """Move a share of each task's images to the other tasks, evenly, and shuffle the images of each task."""
    if len(tasks) < 2:
        raise DataError("a blurry stream needs at least two tasks: give fewer classes_per_task")
    pools = [rng.permutation(np.concatenate(members)) for members in tasks]
    kept = [[pool[round(share * len(pool)) :]] for pool in pools]
    for giver, pool in enumerate(pools):
        takers = rng.permutation([taker for taker in range(len(tasks)) if taker != giver])
        for taker, part in zip(takers, np.array_split(pool[: round(share * len(pool))], len(takers)), strict=True):
            kept[taker].append(part)
    return [[rng.permutation(np.concatenate(parts))] for parts in kept]


def _in_dataset_order(arrivals: Sequence[list[Array]], dataset: Dataset) -> list[list[Array]]:
    """Put the images of each class into the data set's order, at the positions where images of this class arrive."""
    sequence = np.concatenate([its for passes in arrivals for its in passes])
    labels = dataset.train_y[sequence]
    for label in np.unique(labels):
        places = np.flatnonzero(labels == label)
        sequence[places] = np.sort(sequence[places])
    ends = np.cumsum([len(its) for passes in arrivals for its in passes])[:-1]
    return [[its] for its in np.split(sequence, ends)]


def _task(dataset: Dataset, classes: Array, passes: list[Array], scenario: Scenario, batch: int) -> Task:
    """Cut the arriving images into batches. Streams of the paper drop the partial last batch."""
    batches: list[Array] = []
    for indices in passes:
        stop = len(indices) - len(indices) % batch if scenario.published else len(indices)
        batches += [indices[start : start + batch] for start in range(0, stop, batch)]
    if not batches:
        raise DataError(f"a task has {len(indices)} images, less than one full batch of {batch}: use a smaller batch")
    test = np.flatnonzero(np.isin(dataset.test_y, classes))
    return Task(tuple(int(label) for label in classes), tuple(batches), test)


def _interleaved(members: list[Array], rng: np.random.Generator) -> Array:
    """Return the images in rounds. A round has one image of each class that has any left, in shuffled order."""
    rounds = max(len(own) for own in members)
    return np.concatenate([rng.permutation([own[i] for own in members if i < len(own)]) for i in range(rounds)])
