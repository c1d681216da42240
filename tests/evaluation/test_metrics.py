"""Metrics on hand-made numbers and against scipy."""

import pytest
from scipy import stats

from engram.evaluation import metrics

MATRIX = [[60.0, None, None], [90.0, 80.0, None], [70.0, 50.0, 85.0]]
"""The first task is known best after the second."""


def test_average_end_accuracy_is_the_mean_of_the_last_row() -> None:
    assert metrics.average_accuracy(MATRIX) == pytest.approx((70 + 50 + 85) / 3)
    assert metrics.average_accuracy(MATRIX, 1) == pytest.approx(85)


def test_forgetting_is_best_over_time_minus_final() -> None:
    assert metrics.forgetting_by_task(MATRIX) == [20, 30, 0]
    assert metrics.average_forgetting(MATRIX) == pytest.approx(25)
    assert metrics.average_forgetting_all_tasks(MATRIX) == pytest.approx(50 / 3)
    assert metrics.average_forgetting([[80.0]]) == 0


def test_learning_accuracy_is_the_mean_of_the_diagonal() -> None:
    assert metrics.learning_accuracy(MATRIX) == pytest.approx(75)


def test_interval_equals_scipys() -> None:
    values = [12.1, 11.4, 13.0, 12.7, 11.9]
    interval = metrics.Interval.of(values)
    assert interval.half_width is not None
    low, high = stats.t.interval(0.95, len(values) - 1, loc=sum(values) / 5, scale=stats.sem(values))
    assert (interval.mean - interval.half_width, interval.mean + interval.half_width) == pytest.approx((low, high))


def test_a_single_value_has_no_interval() -> None:
    assert metrics.Interval.of([3.0]) == metrics.Interval(3.0, None, 1)


def test_intervals_are_written_with_what_is_known_of_them() -> None:
    assert str(metrics.Interval.of([12.34])) == "12.3"
    assert str(metrics.Interval.of([10.0, 12.0])) == "11.0 ± 12.7"
    assert metrics.Interval.of([12.34]).signed() == "+12.3"
    assert metrics.Interval(-1.5, 0.25, 3).signed(seeds=3) == "-1.5 ± 0.2"
    assert metrics.Interval(1.5, 0.25, 3).signed(seeds=5) == "+1.5 ± 0.2 over 3 of them"


def test_few_seeds_are_warned_of_by_the_fewest() -> None:
    assert metrics.warning_of_few([5, 10]) is None
    assert metrics.warning_of_few([]) is None
    assert "4 seeds are few" in (metrics.warning_of_few([10, 4, 5]) or "")
    assert "One seed" in (metrics.warning_of_few([3, 1]) or "")
