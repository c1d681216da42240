"""Accuracy over tasks, forgetting, and intervals over seeds. Everything in percent.

`matrix[i][j]` is the accuracy on the test images of task j after learning task i, None for tasks not yet learned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

Matrix = Sequence[Sequence[float | None]]
Metric = Callable[[Matrix], float | list[float]]

ENOUGH_SEEDS = 5
"""Number of seeds from which an interval is not called wide."""


def average_accuracy(matrix: Matrix, after: int = -1) -> float:
    """Return the mean accuracy on the tasks learned so far, after task `after` (the last by default)."""
    row = [value for value in matrix[after] if value is not None]
    return sum(row) / len(row)


def average_accuracy_after_task(matrix: Matrix) -> list[float]:
    """Return the mean accuracy on the tasks learned so far, after each task."""
    return [average_accuracy(matrix, task) for task in range(len(matrix))]


def forgetting_by_task(matrix: Matrix) -> list[float]:
    """Return for each task its best accuracy at any time minus the final one."""
    columns = zip(*matrix, strict=True)
    seen = [[value for value in column if value is not None] for column in columns]
    return [max(column) - column[-1] for column in seen]


def average_forgetting(matrix: Matrix) -> float:
    """Return the mean forgetting over all tasks but the last, which cannot have been forgotten; 0 for one task."""
    earlier = forgetting_by_task(matrix)[:-1]
    return sum(earlier) / len(earlier) if earlier else 0.0


def average_forgetting_all_tasks(matrix: Matrix) -> float:
    """Return the mean forgetting over all tasks, as the paper publishes it; the last one adds 0."""
    every = forgetting_by_task(matrix)
    return sum(every) / len(every)


def learning_accuracy(matrix: Matrix) -> float:
    """Return the mean of each task's accuracy right after it was learned."""
    diagonal = [matrix[task][task] for task in range(len(matrix))]
    return sum(value for value in diagonal if value is not None) / len(diagonal)


METRICS: dict[str, Metric] = {
    "average_end_accuracy": average_accuracy,
    "average_accuracy_after_task": average_accuracy_after_task,
    "average_forgetting": average_forgetting,
    "average_forgetting_all_tasks": average_forgetting_all_tasks,
    "learning_accuracy": learning_accuracy,
}
"""Every metric of an accuracy matrix, by name. An entry added here appears in evaluations and in results."""


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % Student-t interval.

    Args:
        mean: mean of the values.
        half_width: half the width of the interval, or None for a single value.
        count: number of values.
    """

    mean: float
    half_width: float | None
    count: int

    @staticmethod
    def of(values: Sequence[float]) -> Interval:
        """Return the interval of some values.

        >>> str(Interval.of([10.0, 12.0, 14.0]))
        '12.0 ± 5.0'
        """
        count, mean = len(values), sum(values) / len(values)
        if count < 2:
            return Interval(mean, None, count)
        from scipy.stats import t

        deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
        return Interval(mean, float(t.ppf(0.975, count - 1)) * deviation / math.sqrt(count), count)

    def __str__(self) -> str:
        return f"{self.mean:.1f}{self._spread()}"

    def signed(self, seeds: int | None = None) -> str:
        """Return the mean with its sign. If it covers fewer than `seeds` values, the text says how many."""
        part = "" if seeds in (None, self.count) else f" over {self.count} of them"
        return f"{self.mean:+.1f}{self._spread()}{part}"

    def _spread(self) -> str:
        """Return the half-width in words, and nothing for a single value, which has none."""
        return "" if self.half_width is None else f" ± {self.half_width:.1f}"


def warning_of_few(counts: Iterable[int]) -> str | None:
    """Return a warning if some means or differences are over few seeds; `counts` are their numbers of seeds."""
    fewest = min(counts, default=ENOUGH_SEEDS)
    if fewest >= ENOUGH_SEEDS:
        return None
    if fewest == 1:
        return "One seed says nothing about chance: differences of a few points mean nothing."
    return f"{fewest} seeds are few: only differences whose interval excludes zero mean anything."
