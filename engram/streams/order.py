"""Class-incremental streams: classes shuffled by seed and cut into tasks, each image delivered once.

*paper*: batches as class-balanced as the images allow (one of each class when a task has as many classes as a batch
images), full batches only. *strict*: plain shuffle within a task, the partial last batch kept. *iid*: all classes in
one task, shuffled anew for each of many epochs, full batches only: no continual learning at all, but its upper bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from engram.naming import suggest
from engram.streams.dataset import Array, DataError, Dataset

ORDERS = ("strict", "paper", "iid")


@dataclass(frozen=True)
class Task:
    """A few classes, the batches they arrive in and their test images, all as indices into the data set."""

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

    def batches(self, task: Task, start: int = 0) -> Iterator[tuple[Array, Array]]:
        """Images and labels of a task, from batch `start` on."""
        for indices in task.batches[start:]:
            yield self.dataset.train_x[indices], self.dataset.train_y[indices]

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
) -> TaskStream:
    """Cut `dataset` into tasks. `images_per_class` keeps the first so many training images of each class; `epochs` is
    how often the *iid* stream shows them.

    Without `classes_per_task` a task has ten classes, or two where the data set has no more than ten. Without `tasks`
    all classes come, the last task with what is left.
    """
    if order not in ORDERS:
        raise DataError(f"unknown stream {order!r}{suggest(order, list(ORDERS))}")
    total = len(dataset.class_names)
    width = (10 if total > 10 else 2) if classes_per_task is None else classes_per_task
    count = -(-total // max(width, 1)) if tasks is None else tasks
    if min(batch, width, count, epochs, 1 if images_per_class is None else images_per_class) < 1:
        raise DataError("batch, tasks, classes_per_task, images_per_class and epochs must be at least 1")
    if tasks is not None and count * width > total:
        raise DataError(f"{count} tasks of {width} classes ask for {count * width}; {dataset.name} has {total}")
    rng = np.random.default_rng([seed, 0])
    chosen = rng.permutation(total)[: count * width]
    classes = [chosen] if order == "iid" else [chosen[start : start + width] for start in range(0, len(chosen), width)]
    passes = epochs if order == "iid" else 1
    return TaskStream(
        dataset, order, tuple(_task(dataset, row, order, batch, images_per_class, passes, rng) for row in classes)
    )


def _task(
    dataset: Dataset,
    classes: Array,
    order: str,
    batch: int,
    images_per_class: int | None,
    passes: int,
    rng: np.random.Generator,
) -> Task:
    members = [rng.permutation(np.flatnonzero(dataset.train_y == label)[:images_per_class]) for label in classes]
    batches: list[Array] = []
    for _ in range(passes):
        indices = _interleaved(members, rng) if order == "paper" else rng.permutation(np.concatenate(members))
        stop = len(indices) if order == "strict" else len(indices) - len(indices) % batch
        batches += [indices[start : start + batch] for start in range(0, stop, batch)]
    if not batches:
        raise DataError(f"a task has {len(indices)} images, less than one full batch of {batch}: use a smaller batch")
    test = np.flatnonzero(np.isin(dataset.test_y, classes))
    return Task(tuple(int(label) for label in classes), tuple(batches), test)


def _interleaved(members: list[Array], rng: np.random.Generator) -> Array:
    """Round after round, one image of each class that has any left, shuffled within the round."""
    rounds = max(len(own) for own in members)
    return np.concatenate([rng.permutation([own[i] for own in members if i < len(own)]) for i in range(rounds)])
