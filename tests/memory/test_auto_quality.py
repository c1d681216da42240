"""A codec that chooses its quality: high while there is room for many pictures of each class, lower as classes come."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from engram import InputError, Learner
from engram.base.batch import Batch
from engram.base.rng import Randomness
from engram.memory import AutoQuality, Balanced, Store, encoding_anew, lower_quality, make_store, parse_codec
from engram.testing import a_failed_batch_changes_nothing, resumes_exactly, small_options
from tests.helpers import small_learner

SHAPE = (3, 32, 32)


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding_anew, "ENOUGH_IMAGES", 10)


def pictures(count: int, seed: int) -> torch.Tensor:
    """Return smooth random images, which a codec can make small."""
    coarse = torch.rand(count, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
    return F.interpolate(coarse, size=32, mode="bilinear")


def filled(codec: str, classes: int, memory_bytes: int = 6000) -> Store:
    """Return a memory that has seen 20 images of each class."""
    store, policy, rng = make_store({"memory_bytes": memory_bytes, "codec": codec}, SHAPE), Balanced(), Randomness(0)
    for label in range(classes):
        for turn in range(4):
            batch = Batch(pictures(5, 10 * label + turn), torch.full((5,), label))
            policy.store(batch, SimpleNamespace(memory=store, rng=rng))
            lower_quality(store)
            assert store.used == sum(map(len, store.records)) <= memory_bytes
    return store


def quality(store: Store) -> int:
    assert isinstance(store.codec, AutoQuality)
    return store.codec.qualities[store.codec.level]


def test_quality_goes_down_only_when_classes_lack_room() -> None:
    by_classes = {classes: filled("avif(auto)", classes) for classes in (1, 4, 20)}
    assert [quality(store) for store in by_classes.values()] == [70, 50, 35]
    for classes, store in by_classes.items():
        assert store.capacity >= 10 * classes or quality(store) == 35
        fixed = filled(f"avif({quality(store)})", classes)
        assert store.size >= 0.9 * fixed.size, "as many pictures as with that quality from the start"


def test_what_is_held_becomes_smaller_and_stays_in_place() -> None:
    store = make_store({"memory_bytes": 30_000, "codec": "avif(auto)"}, SHAPE)
    x = pictures(30, 0)
    for position in range(30):
        store.put(position, Batch(x, torch.arange(30)), position)
    before, ids = store.used, store.ids.clone()
    lower_quality(store)
    assert quality(store) == 35
    assert store.used == sum(map(len, store.records)) < 0.8 * before
    assert torch.equal(store.ids, ids)
    held = store.read(store.filled())
    assert held.y.tolist() == list(range(30))
    assert (held.x - x).square().mean() < 2e-3, "a PSNR of more than 27 dB"


def test_other_codecs_and_limits_are_left_alone() -> None:
    for options in ({"memory_bytes": 6000, "codec": "avif(70)"}, {"memory_size": 5, "codec": "avif(auto)"}):
        store = make_store({"memory_size": None, "memory_bytes": None} | options, SHAPE)
        batch = Batch(pictures(5, 0), torch.arange(5))
        for position in range(5):
            store.put(position, batch, position)
        version = store.version
        lower_quality(store)
        assert store.version == version


def test_a_learner_keeps_more_classes_in_the_same_bytes_and_goes_on_exactly(tmp_path: Any) -> None:
    learner = Learner("er-ema", memory_bytes=6000, codec="avif(auto)", net={"width": 8}, scheme={"replay": 4})
    for label in range(12):
        learner.observe(pictures(6, label), [label] * 6)
        learner.save(tmp_path / "l")
        learner = Learner.load(tmp_path / "l")
    assert learner.footprint()["images"] <= 6000
    assert quality(learner.memory) < 70
    assert set(learner.memory.labels[: learner.memory.size].tolist()) == set(range(12))


@pytest.mark.parametrize("method", ["er-ema", "der++", "er+ssd"])
@pytest.mark.parametrize("check", [resumes_exactly, a_failed_batch_changes_nothing], ids=lambda check: check.__name__)
def test_contract(method: str, check: Any) -> None:
    limits = {"memory_size": None, "memory_bytes": 3000, "codec": "avif(auto)"}
    check(lambda **changes: small_learner(method, **small_options(method) | limits | changes))


def test_a_quality_that_does_not_exist_is_refused() -> None:
    codec = parse_codec("avif(auto)")
    assert isinstance(codec, AutoQuality)
    with pytest.raises(ValueError, match="no quality number 7"):
        codec.load_state({"level": 7})
    with pytest.raises(InputError, match="unknown codec 'webp"):
        parse_codec("webp(auto)")
