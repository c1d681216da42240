"""Class-incremental streams: classes cut into tasks, each image delivered once.

*paper*: batches as class-balanced as the images allow (one of each class when a task has as many classes as a batch
images), full batches only. *paper-shuffled*: the paper's stream of methods without such a sampler: plainly shuffled
within a task, full batches only. *strict*: plain shuffle within a task, the partial last batch kept. *blurry(p)*:
strict, but a share p of each task's images comes from the classes of other tasks. *imbalanced(r)*: strict, but the
classes have fewer and fewer images, the rarest one r times fewer than the commonest. *iid*: all classes in one task,
shuffled anew for each of many epochs, full batches only: no continual learning at all, but its upper bound.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from engram.naming import suggest
from engram.streams.dataset import Array, DataError, Dataset

ORDERS = ("strict", "paper", "paper-shuffled", "iid", "blurry", "imbalanced")
DEFAULTS = {"blurry": 0.1, "imbalanced": 50.0}


@dataclass(frozen=True)
class Scenario:
    """A kind of stream, and its number where it has one."""

    kind: str
    value: float = 0.0

    @staticmethod
    def parse(text: str) -> Scenario:
        """Of a name such as "strict", "blurry(0.1)" or "imbalanced" (which is imbalanced(50))."""
        match = re.fullmatch(r"([\w-]+)(?:\(([\d.]+)\))?", text)
        if not match or match[1] not in ORDERS:
            name = match[1] if match else text
            raise DataError(f"unknown stream {text!r}{suggest(name, list(ORDERS))}")
        kind, number = match[1], match[2]
        if kind not in DEFAULTS:
            if number is not None:
                raise DataError(f"stream {text!r}: {kind} takes no number")
            return Scenario(kind)
        try:
            value = float(number) if number is not None else DEFAULTS[kind]
        except ValueError:
            raise DataError(f"stream {text!r}: {number!r} is no number") from None
        if kind == "blurry" and not 0 < value < 1:
            raise DataError(f"stream {text!r}: the share of images of other tasks lies between 0 and 1")
        if kind == "imbalanced" and value < 1:
            raise DataError(f"stream {text!r}: the commonest class has at least as many images as the rarest")
        return Scenario(kind, value)

    @property
    def name(self) -> str:
        """By which `parse` knows it, number included."""
        return f"{self.kind}({self.value:g})" if self.kind in DEFAULTS else self.kind

    @property
    def published(self) -> bool:
        """Whether it is one of the paper's: full batches only, and the number of classes known in advance."""
        return self.kind in ("paper", "paper-shuffled", "iid")

    @property
    def bounded(self) -> bool:
        """Whether the ends of its tasks are announced."""
        return self.kind in ("paper", "paper-shuffled")


@dataclass(frozen=True)
class Task:
    """A few classes, the batches of the task and the classes' test images, all as indices into the data set."""

    classes: tuple[int, ...]
    batches: tuple[Array, ...]
    test: Array


@dataclass(frozen=True)
class TaskStream:
    """Tasks one after the other."""

    dataset: Dataset
    order: str
    tasks: tuple[Task, ...]

    @property
    def batch_count(self) -> int:
        return sum(len(task.batches) for task in self.tasks)

    @property
    def class_count(self) -> int:
        return sum(len(task.classes) for task in self.tasks)

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        """The batches of all tasks, one after the other: images and labels."""
        for task in self.tasks:
            yield from self.batches(task)

    def batches(self, task: Task, start: int = 0) -> Iterator[tuple[Array, Array]]:
        """Images and labels of a task, from batch `start` on."""
        for indices in task.batches[start:]:
            yield self.dataset.train_x[indices], self.dataset.train_y[indices]

    def digest(self) -> str:
        """Of which image arrives when, and of which class it is."""
        digest = hashlib.sha256(np.ascontiguousarray(self.dataset.train_y, "<i8").tobytes())
        for task in self.tasks:
            for indices in task.batches:
                digest.update(np.ascontiguousarray(indices, "<i8").tobytes())
        return digest.hexdigest()

    def test(self, task: Task) -> tuple[Array, Array]:
        return self.dataset.test_x[task.test], self.dataset.test_y[task.test]


def class_incremental(
    dataset: Dataset,
    seed: int,
    order: str = "strict",
    batch: int = 10,
    tasks: int | None = None,
    classes_per_task: int | None = None,
    images_per_class: int | None = None,
    epochs: int = 50,
    class_order: Literal["seed", "fixed"] = "seed",
    instance_order: Literal["shuffled", "kept"] = "shuffled",
) -> TaskStream:
    """Cut `dataset` into tasks. `images_per_class` keeps the first so many training images of each class; `epochs` is
    how often the *iid* stream shows them.

    Without `classes_per_task` a task has ten classes, or two where the data set has no more than ten. Without `tasks`
    all classes come, the last task with what is left. Classes come in an order drawn by `seed`, or as they are
    numbered; the images of a class shuffled, or in the data set's order.
    """
    scenario = Scenario.parse(order)
    total = len(dataset.class_names)
    width = (10 if total > 10 else 2) if classes_per_task is None else classes_per_task
    count = -(-total // max(width, 1)) if tasks is None else tasks
    if min(batch, width, count, epochs, 1 if images_per_class is None else images_per_class) < 1:
        raise DataError("batch, tasks, classes_per_task, images_per_class and epochs must be at least 1")
    if tasks is not None and count * width > total:
        raise DataError(f"{count} tasks of {width} classes ask for {count * width}; {dataset.name} has {total}")
    for name, value, known in (
        ("class_order", class_order, ("seed", "fixed")),
        ("instance_order", instance_order, ("shuffled", "kept")),
    ):
        if value not in known:
            raise DataError(f"{name} is {value!r}: choose {known[0]!r} or {known[1]!r}")
    if instance_order == "kept" and scenario.kind == "iid":
        raise DataError("an iid stream shuffles: it cannot keep the order of a class's images")
    rng = np.random.default_rng([seed, 0])
    chosen = (rng.permutation(total) if class_order == "seed" else np.arange(total))[: count * width]
    rows = [chosen] if scenario.kind == "iid" else [chosen[at : at + width] for at in range(0, len(chosen), width)]
    members = _members(dataset, chosen, scenario, images_per_class, rng)
    passes = epochs if scenario.kind == "iid" else 1
    if scenario.kind == "blurry":
        arrivals = _blurred([[members[label] for label in row] for row in rows], scenario.value, rng)
    else:
        arrivals = [_arrival([members[label] for label in row], scenario, passes, rng) for row in rows]
    if instance_order == "kept":
        arrivals = _in_dataset_order(arrivals, dataset)
    return TaskStream(
        dataset,
        order,
        tuple(_task(dataset, row, its, scenario, batch) for row, its in zip(rows, arrivals, strict=True)),
    )


def _members(
    dataset: Dataset, classes: Array, scenario: Scenario, images_per_class: int | None, rng: np.random.Generator
) -> dict[int, Array]:
    """The training images of each class that take part."""
    members = {int(label): np.flatnonzero(dataset.train_y == label)[:images_per_class] for label in classes}
    if scenario.kind != "imbalanced":
        return members
    steps = max(1, len(classes) - 1)
    ranks = rng.permutation(len(classes))
    return {
        label: own[: max(1, round(len(own) * scenario.value ** (-rank / steps)))]
        for rank, (label, own) in zip(ranks.tolist(), members.items(), strict=True)
    }


def _arrival(members: list[Array], scenario: Scenario, passes: int, rng: np.random.Generator) -> list[Array]:
    """The images of a task in order of arrival, once for each pass."""
    members = [rng.permutation(own) for own in members]
    if scenario.kind == "paper":
        return [_interleaved(members, rng) for _ in range(passes)]
    return [rng.permutation(np.concatenate(members)) for _ in range(passes)]


def _blurred(tasks: list[list[Array]], share: float, rng: np.random.Generator) -> list[list[Array]]:
    """Each task gives a share of its images to the others, evenly, and all are shuffled."""
    if len(tasks) < 2:
        raise DataError("a blurry stream needs two tasks at least: give fewer classes_per_task")
    pools = [rng.permutation(np.concatenate(members)) for members in tasks]
    kept = [[pool[round(share * len(pool)) :]] for pool in pools]
    for giver, pool in enumerate(pools):
        takers = rng.permutation([taker for taker in range(len(tasks)) if taker != giver])
        for taker, part in zip(takers, np.array_split(pool[: round(share * len(pool))], len(takers)), strict=True):
            kept[taker].append(part)
    return [[rng.permutation(np.concatenate(parts))] for parts in kept]


def _in_dataset_order(arrivals: Sequence[list[Array]], dataset: Dataset) -> list[list[Array]]:
    """Every image arrives where one of its class did, but each class's in the data set's order."""
    sequence = np.concatenate([its for passes in arrivals for its in passes])
    labels = dataset.train_y[sequence]
    for label in np.unique(labels):
        places = np.flatnonzero(labels == label)
        sequence[places] = np.sort(sequence[places])
    ends = np.cumsum([len(its) for passes in arrivals for its in passes])[:-1]
    return [[its] for its in np.split(sequence, ends)]


def _task(dataset: Dataset, classes: Array, passes: list[Array], scenario: Scenario, batch: int) -> Task:
    batches: list[Array] = []
    for indices in passes:
        stop = len(indices) - len(indices) % batch if scenario.published else len(indices)
        batches += [indices[start : start + batch] for start in range(0, stop, batch)]
    if not batches:
        raise DataError(f"a task has {len(indices)} images, less than one full batch of {batch}: use a smaller batch")
    test = np.flatnonzero(np.isin(dataset.test_y, classes))
    return Task(tuple(int(label) for label in classes), tuple(batches), test)


def _interleaved(members: list[Array], rng: np.random.Generator) -> Array:
    """Round after round, one image of each class that has any left, shuffled within the round."""
    rounds = max(len(own) for own in members)
    return np.concatenate([rng.permutation([own[i] for own in members if i < len(own)]) for i in range(rounds)])
