"""Reservoir and dynamic memory: what enters, what stays, with which probability."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from engram import RunConfig
from engram.base.batch import Batch
from engram.base.interfaces import StoreReport
from engram.base.rng import Randomness
from engram.memory import Dynamic, Reservoir, Store

SHAPE = (1, 2, 2)


class Stream:
    """Feeds numbered images to a policy; an image's pixels are its number."""

    def __init__(self, policy: Reservoir | Dynamic, capacity: int, slots_per_class: int = 1, seed: int = 0) -> None:
        self.policy, self.store = policy, Store(capacity, SHAPE)
        self.rng, self.slots_per_class = Randomness(seed), slots_per_class
        self.labels: list[int] = []

    def send(self, labels: list[int]) -> StoreReport:
        numbers = torch.arange(len(self.labels), len(self.labels) + len(labels)).float()
        self.labels += labels
        batch = Batch(numbers.view(-1, 1, 1, 1).expand(-1, *SHAPE), torch.tensor(labels))
        ctx = SimpleNamespace(memory=self.store, rng=self.rng, slots_per_class=self.slots_per_class)
        return self.policy.store(batch, ctx)

    def fill(self, count: int) -> list[int]:
        self.send([0] * count)
        return self.held()

    def held(self) -> list[int]:
        """The numbers of the images in memory, by slot."""
        return self.store.read(self.store.filled()).x[:, 0, 0, 0].int().tolist()


def test_reservoir_keeps_every_image_with_its_probability() -> None:
    """One image at a time: the first K of N stay with (K-1)/(N-1), every later one with K/(N-1)."""
    capacity, length, seeds = 6, 30, 3000
    kept: Counter[int] = Counter()
    for seed in range(seeds):
        stream = Stream(Reservoir(), capacity, seed=seed)
        for _ in range(length):
            stream.send([0])
        kept.update(stream.held())
    observed = [kept[number] for number in range(length)]
    expected = [seeds * (capacity - (number < capacity)) / (length - 1) for number in range(length)]
    assert chisquare(observed, expected).pvalue > 1e-3


def test_reservoir_is_uniform_over_batches_once_full() -> None:
    """In batches of ten: images after the first K are kept alike, whenever they came."""
    capacity, batches, seeds = 50, 20, 400
    kept: Counter[int] = Counter()
    for seed in range(seeds):
        stream = Stream(Reservoir(), capacity, seed=seed)
        for _ in range(batches):
            stream.send([0] * 10)
        kept.update(number // 10 for number in stream.held() if number >= capacity)
    assert chisquare([kept[batch] for batch in range(5, batches)]).pvalue > 1e-3


@pytest.mark.parametrize("policy", [Reservoir, Dynamic])
def test_a_batch_that_fills_the_last_slots_may_then_replace_any_of_them(policy: type) -> None:
    """K=15 in batches of ten: the last five of the second batch draw from all 15 slots."""
    replaced: Counter[int] = Counter()
    for seed in range(600):
        stream = Stream(policy(), capacity=15, seed=seed)
        stream.send([0] * 10)
        stream.send([0] * 10)
        replaced.update({slot for slot, number in enumerate(stream.held()) if number >= 15})
    free = range(15) if policy is Reservoir else range(1, 15)
    assert chisquare([replaced[slot] for slot in free]).pvalue > 1e-3


def test_in_paper_runs_such_a_batch_replaces_images_of_earlier_batches_alone() -> None:
    """K=15 in batches of ten: an index is drawn below the ten images seen before; claimed slot 0 stays."""
    replaced: Counter[int] = Counter()
    for seed in range(600):
        stream = Stream(Dynamic(count_before_batch=True), capacity=15, seed=seed)
        stream.send([0] * 10)
        drawn = torch.Generator()
        drawn.set_state(stream.rng["memory"].get_state())
        indices = torch.randint(10, (10,), generator=drawn).tolist()[5:]
        expected = [*range(15)]
        for number, index in zip(range(15, 20), indices, strict=True):
            if index:
                expected[index] = number
        stream.send([0] * 10)
        assert stream.held() == expected
        replaced.update({slot for slot, number in enumerate(expected) if number >= 15})
    assert chisquare([replaced[slot] for slot in range(1, 10)]).pvalue > 1e-3
    config = RunConfig("scr+dynamic", dataset="digits", stream="paper")
    assert config.settings["policy"]["count_before_batch"] is True
    assert RunConfig("scr+dynamic", dataset="digits").settings["policy"]["count_before_batch"] is None


def test_reservoir_uses_every_slot_alike_the_first_and_last_included() -> None:
    capacity, seeds = 8, 1500
    replaced: Counter[int] = Counter()
    for seed in range(seeds):
        stream = Stream(Reservoir(), capacity, seed=seed)
        stream.send([0] * capacity)
        stream.send([0] * 3)
        replaced.update({slot for slot, number in enumerate(stream.held()) if number >= capacity})
    assert chisquare([replaced[slot] for slot in range(capacity)]).pvalue > 1e-3


def test_later_of_two_that_hit_the_same_slot_wins() -> None:
    stream = Stream(Reservoir(), capacity=1)
    stream.send([0])
    stream.send([0, 0, 0])
    assert stream.held() == [3]


def test_a_first_batch_larger_than_the_memory_competes_for_every_slot() -> None:
    """None of the first six survives 94 that may each take any of six slots."""
    assert all(min(Stream(Reservoir(), 6, seed=seed).fill(100)) >= 6 for seed in range(20))


def test_first_images_of_each_class_claim_a_slot() -> None:
    stream = Stream(Dynamic(), capacity=6, slots_per_class=2)
    report = stream.send([0, 1, 0, 0, 1])
    assert stream.held() == [0, 1, 2, 4, 3]
    assert stream.store.claimed.tolist() == [True, True, True, True, False, False]
    assert report.claimed == [0, 1, 2, 3]
    assert report.stored == [0, 1, 2, 3, 4]


def test_a_full_memory_gives_a_new_class_a_uniform_unclaimed_slot() -> None:
    seeds, taken = 1500, Counter()
    for seed in range(seeds):
        stream = Stream(Dynamic(), capacity=6, seed=seed)
        stream.send([0] * 6)
        (slot,) = stream.send([1]).claimed
        taken[slot] += 1
    assert set(taken) == {1, 2, 3, 4, 5}
    assert chisquare(list(taken.values())).pvalue > 1e-3


def test_where_all_is_claimed_a_new_class_takes_from_the_richest() -> None:
    stream = Stream(Dynamic(), capacity=4, slots_per_class=3)
    stream.send([0, 0, 0, 1])
    report = stream.send([2])
    owners = Counter(stream.store.labels[stream.store.claimed].tolist())
    assert owners == {0: 2, 1: 1, 2: 1}
    assert len(report.claimed) == 1
    assert stream.send([2]).claimed == []


batches = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=7), min_size=1, max_size=25)


@given(batches, st.integers(7, 20), st.integers(0, 5))
@settings(max_examples=80, deadline=None)
def test_claimed_slots_never_change(sent: list[list[int]], capacity: int, seed: int) -> None:
    stream = Stream(Dynamic(), capacity, slots_per_class=1, seed=seed)
    claimed: dict[int, int] = {}
    for labels in sent:
        report = stream.send(labels)
        held = stream.held()
        assert all(held[slot] == number for slot, number in claimed.items())
        claimed |= {slot: held[slot] for slot in report.claimed}


@given(batches, st.integers(7, 20), st.integers(1, 20), st.integers(0, 5))
@settings(max_examples=80, deadline=None)
def test_dynamic_keeps_every_class_and_every_label_with_its_image(
    sent: list[list[int]], capacity: int, slots_per_class: int, seed: int
) -> None:
    stream = Stream(Dynamic(), capacity, slots_per_class, seed=seed)
    for labels in sent:
        stream.send(labels)
        owned = Counter(stream.store.labels[stream.store.claimed].tolist())
        assert set(owned) == set(stream.labels)
        assert max(owned.values()) <= slots_per_class
        assert stream.store.labels[: stream.store.size].tolist() == [stream.labels[n] for n in stream.held()]
        assert stream.store.seen == len(stream.labels)
        assert stream.store.size == min(capacity, len(stream.labels))


@pytest.mark.parametrize("policy", [Reservoir, Dynamic])
def test_one_slot_is_enough_to_run(policy: type) -> None:
    stream = Stream(policy(), capacity=1)
    for index in range(20):
        stream.send([index % 3, 0])
    assert len(stream.held()) == 1


def test_unclaimed_part_of_the_dynamic_memory_is_a_reservoir() -> None:
    """The first image of the only class is claimed; the rest compete for the other slots alike."""
    capacity, length, seeds = 5, 25, 3000
    kept: Counter[int] = Counter()
    for seed in range(seeds):
        stream = Stream(Dynamic(), capacity, seed=seed)
        for _ in range(length):
            stream.send([0])
        kept.update(stream.held()[1:])
    late = np.array([kept[number] for number in range(capacity, length)])
    assert chisquare(late).pvalue > 1e-3
    assert late.sum() / seeds == pytest.approx((length - capacity) * (capacity - 1) / (length - 1), rel=0.03)
