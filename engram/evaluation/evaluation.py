"""Evaluate anything that learns from a stream: `evaluate(learner, stream)` returns an `Evaluation`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from engram.base.errors import InputError
from engram.evaluation import metrics
from engram.evaluation.metrics import METRICS
from engram.streams import Scenario, Task, TaskStream

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Predict = Callable[[Any], Any]


class StreamLearner(Protocol):
    """What can be evaluated: a `Learner`, or any object with these two methods."""

    def observe(self, x: Any, y: Any) -> Any:
        """Learn from one batch of images and labels."""

    def predict(self, x: Any) -> Any:
        """Return one label for each image."""


@dataclass(frozen=True)
class Evaluation:
    """How well something learned a stream of tasks.

    Args:
        matrix: row i holds the accuracies in percent after learning task i, one for each task; None for tasks that were
            not learned yet.
    """

    matrix: list[list[float | None]] = field(default_factory=list)

    @property
    def average_end_accuracy(self) -> float:
        """Mean accuracy over all tasks at the end."""
        return metrics.average_accuracy(self.matrix)

    @property
    def average_accuracy_after_task(self) -> list[float]:
        """Mean accuracy over the tasks learned so far, after each task."""
        return metrics.average_accuracy_after_task(self.matrix)

    @property
    def average_forgetting(self) -> float:
        """Mean over all tasks but the last of the best accuracy minus the final one."""
        return metrics.average_forgetting(self.matrix)

    @property
    def average_forgetting_all_tasks(self) -> float:
        """The same over all tasks, as the paper publishes it."""
        return metrics.average_forgetting_all_tasks(self.matrix)

    @property
    def learning_accuracy(self) -> float:
        """Mean accuracy on each task right after it was learned."""
        return metrics.learning_accuracy(self.matrix)

    def metric(self, name: str) -> float | list[float]:
        """Return a metric of `METRICS` by its name."""
        return METRICS[name](self.matrix)

    def add_task(self, accuracies: Sequence[float], tasks: int) -> None:
        """Add a row: the accuracies on the tasks learned so far, out of `tasks` in all."""
        self.matrix.append([*accuracies, *[None] * (tasks - len(accuracies))])

    def to_dict(self) -> dict[str, Any]:
        """Return every metric by name, and the matrix as `accuracy_matrix`."""
        return {name: metric(self.matrix) for name, metric in METRICS.items()} | {"accuracy_matrix": self.matrix}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Evaluation:
        """Return the evaluation that `to_dict` gave."""
        return cls([list(row) for row in content["accuracy_matrix"]])

    def plot(self, axes: Axes | None = None, label: str | None = None) -> Axes:
        """Draw the mean accuracy after each task, into `axes` if given."""
        if axes is None:
            import matplotlib.pyplot as plt

            axes = plt.subplots(layout="constrained")[1]
        curve = self.average_accuracy_after_task
        axes.plot(range(1, len(curve) + 1), curve, marker="o", label=label)
        axes.set(xlabel="tasks learned", ylabel="mean accuracy %", ylim=(0, 100))
        if label:
            axes.legend(frameon=False)
        return axes


def evaluate(
    learner: StreamLearner, stream: TaskStream, on_task: Callable[[int, Evaluation], None] | None = None
) -> Evaluation:
    """Let `learner` learn the stream once, and score it on the test images of all tasks seen after each task.

    Examples:
        >>> from engram import Learner, class_incremental, evaluate, load_dataset
        >>> stream = class_incremental(load_dataset("digits"), seed=0, tasks=2, images_per_class=20)
        >>> evaluation = evaluate(Learner("er", memory_size=10, net={"width": 8}), stream)
        >>> len(evaluation.matrix), 0 <= evaluation.average_end_accuracy <= 100
        (2, True)

    Args:
        learner: a `Learner`, or any object with `observe(x, y)` and `predict(x)`. If it has `boundary()`, that is
            called after each task of a stream that announces its tasks.
        stream: tasks to learn, from `class_incremental`.
        on_task: called after each task with its number, counted from 1, and the evaluation so far.
    """
    evaluation = Evaluation()
    announce = getattr(learner, "boundary", None) if Scenario.parse(stream.order).bounded else None
    for number, task in enumerate(stream.tasks, 1):
        for x, y in stream.batches(task):
            learner.observe(x, y)
        evaluation.add_task(score_tasks(learner.predict, stream, stream.tasks[:number]), len(stream.tasks))
        if announce is not None:
            announce()
        if on_task is not None:
            on_task(number, evaluation)
    return evaluation


def score_tasks(predict: Predict, stream: TaskStream, tasks: Sequence[Task]) -> list[float]:
    """Return the accuracy in percent on the test images of each task."""
    return [_accuracy(predict, *stream.test(task)) for task in tasks]


def _accuracy(predict: Predict, x: Any, y: Any) -> float:
    if not len(y):
        raise InputError("a task has no test image, so it cannot be scored: give every class some test images")
    return 100 * float(np.mean(np.array(predict(x)) == y))
