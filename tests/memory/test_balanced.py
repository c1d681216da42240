"""The balanced memory: classes of equal size, each a uniform sample of its own images, within images or bytes."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from engram import Learner
from engram.base.batch import Batch
from engram.base.rng import Randomness
from engram.memory import Balanced, make_store, parse_codec
from engram.testing import small_options
from tests.helpers import feed, fingerprint, toy_images, toy_stream

SHAPE = (1, 16, 16)


class Stream:
    """Feeds numbered images to the policy; an image's pixels are its number, which uint8 holds up to 255."""

    def __init__(self, memory_size: int | None = None, memory_bytes: int | None = None, codec: str = "uint8", seed=0):
        self.policy, self.rng = Balanced(), Randomness(seed)
        limits = {"memory_size": memory_size, "memory_bytes": memory_bytes}
        self.store = make_store(limits | {"codec": codec}, SHAPE)
        self.sent: list[int] = []

    def send(self, labels: list[int]) -> None:
        numbers = torch.arange(len(self.sent), len(self.sent) + len(labels)) / 255
        self.sent += labels
        batch = Batch(numbers.view(-1, 1, 1, 1).expand(-1, *SHAPE).clone(), torch.tensor(labels))
        self.policy.store(batch, SimpleNamespace(memory=self.store, rng=self.rng))

    def held(self) -> list[int]:
        return (self.store.read(self.store.filled()).x[:, 0, 0, 0] * 255).round().int().tolist()

    def counts(self) -> Counter[int]:
        return Counter(self.store.labels[: self.store.size].tolist())


def test_a_late_class_gets_as_many_images_as_the_others() -> None:
    stream = Stream(memory_size=12)
    stream.send([0] * 60)
    assert stream.counts() == {0: 12}
    stream.send([1] * 60)
    assert stream.counts() == {0: 6, 1: 6}
    stream.send([2] * 3)
    assert stream.counts() == {0: 4, 1: 5, 2: 3} or stream.counts() == {0: 5, 1: 4, 2: 3}
    stream.send([2] * 60)
    assert stream.counts() == {0: 4, 1: 4, 2: 4}


def test_what_is_held_of_a_class_is_a_uniform_sample_of_it() -> None:
    """Also of a class that had to give up images to another one in the middle."""
    kept: Counter[int] = Counter()
    for seed in range(1500):
        stream = Stream(memory_size=8, seed=seed)
        for _ in range(4):
            stream.send([0] * 5)
        for _ in range(4):
            stream.send([1, 0] * 3)
        kept.update(stream.held())
    of_first = [kept[number] for number, label in enumerate(stream.sent) if label == 0]
    of_second = [kept[number] for number, label in enumerate(stream.sent) if label == 1]
    assert sum(of_first) + sum(of_second) == 8 * 1500
    assert abs(sum(of_first) - sum(of_second)) < 0.1 * sum(of_first)
    assert chisquare(of_second).pvalue > 1e-3
    early, late = sum(of_first[:16]) / 16, sum(of_first[16:]) / 16
    assert early == pytest.approx(late, rel=0.1)


labels = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=8), min_size=1, max_size=12)


@given(labels, st.integers(1, 9), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_classes_differ_by_no_more_than_what_came(sent: list[list[int]], size: int, seed: int) -> None:
    """A class that is smaller than the largest by two or more has all its images in memory."""
    stream = Stream(memory_size=size, seed=seed)
    for batch in sent:
        stream.send(batch)
        counts, seen = stream.counts(), Counter(stream.sent)
        assert stream.store.size == min(size, len(stream.sent))
        assert all(counts[label] >= min(seen[label], max(counts.values()) - 1) for label in seen)
        assert [stream.sent[number] for number in stream.held()] == stream.store.labels[: stream.store.size].tolist()


@given(labels, st.integers(40, 2000), st.sampled_from(["webp(50)", "webp(30,8)", "jpeg(40)"]))
@settings(max_examples=40, deadline=None)
def test_bytes_hold_at_every_moment(sent: list[list[int]], limit: int, codec: str) -> None:
    if limit < len(parse_codec(codec).encode(torch.zeros(1, *SHAPE))[0]):
        return
    stream = Stream(memory_bytes=limit, codec=codec)
    for batch in sent:
        stream.send(batch)
        assert stream.store.used <= limit
        assert all(stream.policy.seen_of_class[label] == count for label, count in Counter(stream.sent).items())


def test_only_images_that_may_stay_are_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoding takes time, and most images of a long stream are not stored."""
    stream = Stream(memory_bytes=400, codec="webp(50)")
    encoded = []
    original = stream.store.codec.encode
    monkeypatch.setattr(stream.store.codec, "encode", lambda x: encoded.append(len(x)) or original(x))
    for _ in range(25):
        stream.send([0] * 10)
    assert stream.store.stored == sum(encoded) < 0.5 * len(stream.sent)


def test_an_image_that_can_never_fit_empties_nothing() -> None:
    stream = Stream(memory_bytes=60, codec="webp(50)")
    stream.send([0])
    held = stream.store.size
    noise = torch.rand(1, *SHAPE, generator=torch.Generator().manual_seed(0))
    stream.policy.store(Batch(noise, torch.tensor([1])), SimpleNamespace(memory=stream.store, rng=stream.rng))
    assert stream.store.size == held == 1


def test_a_learner_resumes_with_its_counts(tmp_path) -> None:
    batches = list(toy_stream(2, 8))
    options = small_options("er-ema")
    whole = feed(Learner("er-ema", **options), batches)
    feed(Learner("er-ema", **options), batches[:9]).save(tmp_path / "saved")
    loaded = Learner.load(tmp_path / "saved")
    assert loaded.policy.seen_of_class == {0: 16, 1: 16, 2: 2, 3: 2}
    assert fingerprint(feed(loaded, batches[9:])) == fingerprint(whole)


def test_an_adopted_memory_counts_what_was_seen_of_each_class() -> None:
    """Otherwise the first images of a class would replace most of what was adopted."""
    first = Learner("er", memory_size=20, net={"width": 8}, policy=Balanced())
    for index in range(10):
        first.observe(toy_images([0, 1] * 10, index), [0, 1] * 10)
    second = Learner("er", memory_size=20, net={"width": 8}, policy=Balanced())
    second.adopt(first.export_memory())
    assert second.policy.seen_of_class == {0: 100, 1: 100}
    second.observe(toy_images([0, 1] * 10, 20), [0, 1] * 10)
    assert second.memory.stored - 20 < 8, "about two of twenty are expected to be stored, not thirteen"


def test_an_image_larger_than_the_memory_is_left_out_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    learner = Learner("er", memory_bytes=150, codec="avif(90)", net={"width": 8}, policy=Balanced())
    noise = torch.rand(4, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        learner.observe(noise, [0, 1, 0, 1])
    assert learner.memory.size == 0
    assert caplog.text.count("it cannot be stored") == 1
