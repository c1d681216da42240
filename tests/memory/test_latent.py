"""Latents in 8 and 16 bits."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engram import InputError, Learner
from engram.base.batch import Batch
from engram.memory import ByteLimit, Store, make_store, parse_codec
from engram.memory.latent import Latent8
from engram.testing import toy_images

SHAPE = (3, 2, 2)


def latents(count: int, seed: int, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, *SHAPE, generator=generator) * torch.tensor([0.01, 1, 50]).view(3, 1, 1) * scale


def make(bytes: int, codec: str = "latent8", **options: object) -> Store:
    chosen = {"codec": codec, "memory_bytes": bytes, "memory_size": None, "freeze": "all", **options}
    return make_store(chosen, SHAPE)


def put(store: Store, slot: int, value: Tensor, label: int, priority: float = 1.0) -> int | None:
    return store.put(slot, Batch(value[None], torch.tensor([label])), 0, priority)


def filled(store: Store, values: Tensor) -> Store:
    for slot, value in enumerate(values):
        put(store, slot, value, label=0)
    return store


@given(st.integers(0, 10_000), st.floats(0.001, 1000))
@settings(max_examples=50, deadline=None)
def test_each_channel_loses_at_most_half_a_step_of_its_own_scale(seed: int, scale: float) -> None:
    values = latents(8, seed, scale)
    store = make(10_000)
    records = store.encode(values)
    assert [record.nbytes for record in records] == [12] * 8
    read = store.codec.decode(records, SHAPE)
    assert isinstance(store.codec, Latent8)
    for channel in range(3):
        low, high = float(store.codec.low[channel]), float(store.codec.high[channel])
        own, back = values[:, channel], read[:, channel]
        assert low <= own.min() <= own.max() <= high
        assert (own - back).abs().max() <= 0.5001 * (high - low) / 255
        assert high - low <= 1.6 * float(max(own.max(), torch.tensor(0.0)) - min(own.min(), torch.tensor(0.0)))


def test_values_come_back_as_a_slow_version_says() -> None:
    store = make(10_000)
    values = latents(4, 1)
    read = filled(store, values).read(store.filled()).x
    assert isinstance(store.codec, Latent8)
    for channel in range(3):
        low, high = float(store.codec.low[channel]), float(store.codec.high[channel])
        step = (high - low) / 255
        last = values[3, channel].flatten().tolist()
        expected = [low + step * round((value - low) / step) for value in last]
        assert read[3, channel].flatten().tolist() == pytest.approx(expected, abs=1e-4 * step)


def test_latents_that_are_never_negative_keep_their_zeros() -> None:
    values = latents(6, 2).clamp_min(0)
    read = filled(make(10_000), values).read(torch.arange(6)).x
    assert torch.equal(read == 0, values < read.amax((0, 2, 3)).view(3, 1, 1) / 255 / 2)
    assert (read[values == 0] == 0).all()


def test_a_scale_that_grows_takes_all_that_is_stored_along() -> None:
    store = filled(make(10_000, keep_originals=True), latents(5, 3))
    store.claim(2)
    before, version = store.read(store.filled()).x, store.version
    records = list(store.records)
    wide = latents(1, 4, scale=100)
    put(store, 5, wide[0], label=1)
    after = store.read(store.filled()).x
    assert store.version > version
    assert isinstance(store.codec, Latent8)
    steps = ((store.codec.high - store.codec.low) / 255).view(3, 1, 1)
    assert ((after[:5] - before).abs() <= 0.5001 * steps).all()
    assert not torch.equal(store.records[0], records[0]), "the same bytes mean something else on the new scale"
    assert ((store.read_original(2) - before[2]).abs() <= 0.5001 * steps).all()


def test_a_scale_grows_a_few_times_and_not_with_every_batch() -> None:
    store, grown = make(100_000), 0
    for batch in range(300):
        version = store.version
        store.encode(latents(10, batch))
        grown += store.version - version
    assert 1 <= grown <= 15


def test_a_scale_is_put_back_with_the_rest() -> None:
    store = filled(make(10_000), latents(3, 5))
    before = store.read(store.filled()).x
    undo = store.remember()
    put(store, 3, latents(1, 6, scale=30)[0], label=0)
    undo()
    assert torch.equal(store.read(store.filled()).x, before)


def test_a_saved_scale_is_restored() -> None:
    store, other = filled(make(10_000), latents(3, 7)), make(10_000)
    other.load_state(store.state())
    assert torch.equal(other.read(other.filled()).x, store.read(store.filled()).x)


def test_the_scale_is_counted_in_the_limit_and_in_the_footprint() -> None:
    scale = 3 * 2 * 4
    store = make(5 * 12 + scale)
    assert store.capacity == 5
    assert make(5 * 12 + scale - 1).capacity == 4
    assert store.footprint()["bookkeeping"] - make(5 * 24, "latent16").footprint()["bookkeeping"] == scale
    with pytest.raises(InputError, match="not even one latent, 12 bytes as latent8 and 24 for the scale, fits"):
        make(12 + scale - 1)


def test_policies_under_a_limit_in_bytes_read_what_they_stored() -> None:
    store = Store(ByteLimit(60), SHAPE, parse_codec("latent8"))
    filled(store, latents(4, 8))
    assert put(store, 4, latents(1, 9, scale=20)[0], label=0, priority=2.0) is not None
    assert store.size == 5
    slot = store.limit.slot_to_claim(store, 12, 0, Counter(), torch.Generator())
    assert slot == store.size, "unclaimed images will make room"


def test_sixteen_bits_keep_eleven_of_the_mantissa() -> None:
    codec, values = parse_codec("latent16"), latents(4, 11)
    records = codec.encode(values)
    assert [record.nbytes for record in records] == [24] * 4
    assert ((codec.decode(records, SHAPE) - values).abs() <= values.abs() / 2**11 + 1e-7).all()
    huge = codec.decode(codec.encode(torch.full((1, *SHAPE), 1e30)), SHAPE)
    assert huge.isfinite().all()


def test_stored_logits_and_the_shared_scale_stay_within_the_limit() -> None:
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(256, 64))
    learner = Learner("der++", net=net, freeze="all", memory_bytes=2_000)
    for index in range(20):
        learner.observe(toy_images([0, 1] * 4, index), [0, 1] * 4)
    shared = 64 * 4
    assert learner.memory.size > 0
    assert learner.footprint()["images"] + shared <= 2_000
