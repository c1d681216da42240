"""The queue: the most recent images of each current class."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engram.base.batch import Batch
from engram.summarize import ClassQueue


def numbered(labels: list[int], first: int, *, raw: bool = False) -> Batch:
    """Images whose pixels are their number, over 255."""
    values = torch.arange(first, first + len(labels), dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2)
    return Batch(values / 255, torch.tensor(labels), values if raw else None)


def held(queue: ClassQueue, label: int) -> set[int]:
    return set((queue.read(label)[:, 0, 0, 0] * 255).round().int().tolist())


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=20), st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_holds_the_most_recent_of_each_class(batches: list[list[int]], capacity: int) -> None:
    queue = ClassQueue(capacity, max_classes=3)
    arrived: dict[int, list[int]] = {}
    number = 0
    for labels in batches:
        queue.push(numbered(labels, number))
        for label in labels:
            arrived.setdefault(label, []).append(number)
            number += 1
        assert queue.classes == sorted(arrived)
        for label, numbers in arrived.items():
            assert held(queue, label) == set(numbers[-capacity:])
            assert queue.count(label) == min(capacity, len(numbers))


def test_least_recently_seen_class_leaves() -> None:
    queue = ClassQueue(4, max_classes=2)
    queue.push(numbered([0], 0))
    queue.push(numbered([1], 1))
    queue.push(numbered([0], 2))
    queue.push(numbered([2], 3))
    assert queue.classes == [0, 2]
    assert held(queue, 0) == {0, 2}


def test_bytes_stay_bytes_until_floats_come() -> None:
    queue = ClassQueue(4, max_classes=2)
    queue.push(numbered([0, 0], 0, raw=True))
    assert queue.footprint()["queue"] == 2 * 4
    queue.push(numbered([0, 0, 0], 2))
    assert queue.footprint()["queue"] == 4 * 4 * 4
    assert held(queue, 0) == {1, 2, 3, 4}


def test_does_not_alias_what_was_pushed() -> None:
    queue = ClassQueue(2, max_classes=1)
    batch = numbered([0], 7)
    x = batch.x.clone()
    queue.push(Batch(x, batch.y))
    x.zero_()
    assert held(queue, 0) == {7}
