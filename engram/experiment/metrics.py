"""Accuracy over tasks, forgetting, and intervals over seeds. Everything in percent.

`matrix[i][j]` is the accuracy on the test images of task j after learning task i, None for tasks not yet learned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Matrix = Sequence[Sequence[float | None]]

ENOUGH_SEEDS = 5
"""From here on an interval over seeds may be taken at its word."""


def average_accuracy(matrix: Matrix, after: int = -1) -> float:
    """Mean over the tasks learned so far of the accuracy after task `after` (the last: average end accuracy)."""
    row = [value for value in matrix[after] if value is not None]
    return sum(row) / len(row)


def forgetting_by_task(matrix: Matrix) -> list[float]:
    """For each task, its best accuracy at any time minus the final one."""
    columns = zip(*matrix, strict=True)
    seen = [[value for value in column if value is not None] for column in columns]
    return [max(column) - column[-1] for column in seen]


def average_forgetting(matrix: Matrix) -> float:
    """Mean over all tasks but the last, which cannot have been forgotten (0 for a single task)."""
    earlier = forgetting_by_task(matrix)[:-1]
    return sum(earlier) / len(earlier) if earlier else 0.0


def average_forgetting_all_tasks(matrix: Matrix) -> float:
    """Mean over all tasks, as the paper publishes it: the last one adds 0."""
    every = forgetting_by_task(matrix)
    return sum(every) / len(every)


def learning_accuracy(matrix: Matrix) -> float:
    """Mean of each task's accuracy right after it was learned."""
    diagonal = [matrix[task][task] for task in range(len(matrix))]
    return sum(value for value in diagonal if value is not None) / len(diagonal)


def summary(matrix: Matrix) -> dict[str, Any]:
    """Every figure that a result gives of its accuracy matrix, and the matrix."""
    return {
        "average_end_accuracy": average_accuracy(matrix),
        "average_accuracy_after_task": [average_accuracy(matrix, task) for task in range(len(matrix))],
        "average_forgetting": average_forgetting(matrix),
        "average_forgetting_all_tasks": average_forgetting_all_tasks(matrix),
        "learning_accuracy": learning_accuracy(matrix),
        "accuracy_matrix": matrix,
    }


@dataclass(frozen=True)
class Interval:
    """A mean and the half-width of its 95 % Student-t interval, None for a single value."""

    mean: float
    half_width: float | None
    count: int

    @staticmethod
    def of(values: Sequence[float]) -> Interval:
        count, mean = len(values), sum(values) / len(values)
        if count < 2:
            return Interval(mean, None, count)
        from scipy.stats import t

        deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
        return Interval(mean, float(t.ppf(0.975, count - 1)) * deviation / math.sqrt(count), count)

    def __str__(self) -> str:
        return f"{self.mean:.1f}{self._spread()}"

    def signed(self, of: int | None = None) -> str:
        """A difference; it says over how many of `of` runs it was taken, if not over all."""
        part = "" if of in (None, self.count) else f" over {self.count} of them"
        return f"{self.mean:+.1f}{self._spread()}{part}"

    def _spread(self) -> str:
        """A dash where one run says nothing about it."""
        return f" ± {'–' if self.half_width is None else f'{self.half_width:.1f}'}"


def warning_of_few(counts: Iterable[int]) -> str | None:
    """What must be said of means and differences over so many seeds each; None if all are enough."""
    fewest = min(counts, default=ENOUGH_SEEDS)
    if fewest >= ENOUGH_SEEDS:
        return None
    if fewest == 1:
        return "Of a single seed nothing can be said about chance: differences of a few points mean nothing."
    return f"{fewest} seeds are few: only differences whose interval excludes zero mean anything."
