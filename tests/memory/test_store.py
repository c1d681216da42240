"""The slot store: codecs, bytes, claims."""

import pytest
import torch

from engram import InputError
from engram.memory import Float32, Store, Uint8, parse_codec
from engram.streams import load_dataset
from tests.helpers import put_image

SHAPE = (1, 4, 4)


def image(value: float) -> torch.Tensor:
    return torch.full(SHAPE, value)


def filled_store(count: int, capacity: int = 5, **options: bool) -> Store:
    store = Store(capacity, SHAPE, **options)
    for slot in range(count):
        put_image(store, slot, image(slot), label=slot % 2)
    return store


def test_float32_keeps_values_outside_the_unit_interval_bit_for_bit() -> None:
    images = torch.randn(3, *SHAPE) * 10
    records = Float32().encode(images)
    assert torch.equal(Float32().decode(records, SHAPE), images)
    assert [record.nbytes for record in records] == [4 * 16] * 3


def test_read_returns_the_slots_in_the_order_asked_for() -> None:
    batch = filled_store(4).read(torch.tensor([2, 0, 3]))
    assert batch.x[:, 0, 0, 0].tolist() == [2, 0, 3]
    assert batch.y.tolist() == [0, 0, 1]


def test_images_are_counted_in_bytes() -> None:
    counted = filled_store(3).footprint()
    assert counted["images"] == 3 * 4 * 16
    assert counted["labels"] == 5 * 8


def test_claimed_slots_refuse_to_be_overwritten_and_accept_summaries() -> None:
    store = filled_store(3)
    store.claim(1)
    with pytest.raises(ValueError, match="claimed"):
        put_image(store, 1, image(9), label=0)
    store.rewrite(torch.tensor([1]), image(7)[None])
    assert store.read(torch.tensor([1])).x[0, 0, 0, 0] == 7
    assert store.labels[1] == 1
    assert store.summary.tolist() == [False, True, False, False, False]
    assert store.claimed_by(1).tolist() == [1]
    assert store.real_images().tolist() == [0, 2]


def test_a_released_summary_is_not_taken_for_an_original_until_it_is_replaced() -> None:
    store = filled_store(3)
    store.claim(1)
    store.rewrite(torch.tensor([1]), image(7)[None])
    store.release(1)
    assert store.unclaimed().tolist() == [0, 1, 2]
    assert store.real_images().tolist() == [0, 2]
    put_image(store, 1, image(5), label=0)
    assert store.real_images().tolist() == [0, 1, 2]


def test_slots_fill_in_order() -> None:
    with pytest.raises(IndexError):
        put_image(filled_store(2), 3, image(0), label=0)
    with pytest.raises(IndexError):
        put_image(filled_store(5), 5, image(0), label=0)


def test_originals_are_kept_only_when_asked_for_and_then_counted() -> None:
    plain, keeping = filled_store(2), filled_store(2, keep_originals=True)
    for store in (plain, keeping):
        store.claim(0)
        store.rewrite(torch.tensor([0]), image(7)[None])
    assert keeping.read_original(0)[0, 0, 0] == 0
    assert keeping.footprint()["originals"] == 4 * 16
    assert plain.footprint()["originals"] == 0
    with pytest.raises(InputError, match="keep_originals"):
        plain.read_original(0)


def test_state_comes_back_whole() -> None:
    store = filled_store(3, keep_originals=True)
    store.claim(2)
    store.seen = 17
    other = Store(5, SHAPE)
    other.load_state(store.state())
    assert torch.equal(other.read(other.filled()).x, store.read(store.filled()).x)
    assert other.claimed.tolist() == store.claimed.tolist()
    assert torch.equal(other.read_original(2), store.read_original(2))
    assert (other.size, other.seen) == (3, 17)


def test_what_is_stored_does_not_alias_what_was_given() -> None:
    given = image(1)
    store = Store(1, SHAPE)
    put_image(store, 0, given, label=0)
    given.zero_()
    assert store.read(torch.tensor([0])).x.min() == 1


def test_a_memory_needs_a_slot() -> None:
    with pytest.raises(InputError, match="at least one slot"):
        Store(0, SHAPE)


def smooth_images(count: int, channels: int = 3, size: int = 32) -> torch.Tensor:
    """Waves of different lengths: something a picture format can compress."""
    ramp = torch.linspace(0, 3, size)
    waves = [
        0.5 + 0.5 * torch.sin(ramp[:, None] * (i + 1) + ramp[None, :] * (c + 1))
        for i in range(count)
        for c in range(channels)
    ]
    return torch.stack(waves).view(count, channels, size, size)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("name", "error"), [("uint8", 0.5 / 255), ("jpeg(90)", 0.06), ("webp(90)", 0.08)])
def test_lossy_codecs_come_close_and_clamp(name: str, error: float, channels: int) -> None:
    images = smooth_images(4, channels)
    codec = parse_codec(name)
    decoded = codec.decode(codec.encode(images), (channels, 32, 32))
    assert decoded.shape == images.shape
    assert (decoded - images).abs().mean() <= error
    wild = codec.decode(codec.encode(images * 3 - 1), (channels, 32, 32))
    assert 0 <= wild.min() <= wild.max() <= 1


def test_bytes_that_came_as_bytes_survive_uint8_exactly() -> None:
    pixels = torch.randint(256, (5, 3, 8, 8), dtype=torch.uint8)
    decoded = Uint8().decode(Uint8().encode(pixels.float() / 255), (3, 8, 8))
    assert torch.equal((decoded * 255).round().to(torch.uint8), pixels)


def test_quality_buys_bytes() -> None:
    images = smooth_images(3)
    sizes = {name: sum(len(record) for record in parse_codec(name).encode(images)) for name in ("webp(90)", "webp(30)")}
    assert sizes["webp(30)"] < sizes["webp(90)"] < 3 * 3 * 32 * 32


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("wepb", "did you mean 'webp'"),
        ("webp(0)", "between 1 and 100"),
        ("uint8(3)", "no quality"),
        ("webp(x)", "unknown"),
    ],
)
def test_codecs_that_cannot_be_are_refused(name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_codec(name)


def test_the_default_quality_is_written_out() -> None:
    assert [parse_codec(name).name for name in ("webp", "jpeg", "uint8")] == ["webp(50)", "jpeg(75)", "uint8"]


@pytest.mark.realdata
def test_real_images_in_webp_take_a_tenth_of_their_bytes(real_data) -> None:
    images = torch.from_numpy(load_dataset("cifar100", root=real_data).test_x[:300]).float() / 255
    for name, largest, quality in (("webp(50)", 300, 27.5), ("jpeg(75)", 900, 28)):
        codec = parse_codec(name)
        records = codec.encode(images)
        error = (codec.decode(records, (3, 32, 32)) - images).square().mean((1, 2, 3))
        assert sum(len(record) for record in records) / 300 < largest
        assert float((-10 * error.log10()).mean()) > quality
