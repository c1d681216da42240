"""A memory limited in bytes: the limit holds at every moment, labels stay with their images, slots follow the bytes."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engram import InputError, Learner
from engram.base.batch import Batch
from engram.base.sizes import parse_bytes
from engram.memory import ByteLimit, SlotLimit, Store, parse_codec
from engram.testing import fingerprint
from tests.helpers import put_image, small_learner, toy_images

SHAPE = (1, 16, 16)


def image_of(number: int, roughness: float = 0.3) -> torch.Tensor:
    """A gray level that tells the image's number, and noise that decides how many bytes it takes."""
    noise = torch.rand(SHAPE, generator=torch.Generator().manual_seed(number)) - 0.5
    return (0.1 + 0.08 * (number % 11) + 0.04 * roughness * noise).clamp(0, 1)


def store(budget: int, codec: str = "webp(60)") -> Store:
    return Store(ByteLimit(budget), SHAPE, parse_codec(codec))


def test_sizes_as_people_write_them() -> None:
    assert [parse_bytes(size) for size in ("300KB", "1.5MB", "2 KiB", 17, "17b")] == [300_000, 1_500_000, 2048, 17, 17]
    for wrong in ("", "KB", "-3KB", "3 bananas", True, "0"):
        with pytest.raises(InputError, match="size in bytes"):
            parse_bytes(wrong)


def test_images_come_until_the_bytes_are_used_and_the_lowest_priority_goes_first() -> None:
    memory = store(400)
    for number in range(40):
        put_image(memory, memory.size, image_of(number), number % 11, priority=float(number))
        assert memory.used == sum(len(record) for record in memory.records) <= 400
    assert memory.size > 3
    kept = sorted(memory.priority[: memory.size].tolist())
    assert kept == [float(number) for number in range(40 - memory.size, 40)]
    assert put_image(memory, memory.size, image_of(99), 0, priority=-1.0) is None
    assert sorted(memory.priority[: memory.size].tolist()) == kept


def test_removing_moves_the_last_image_with_everything_that_belongs_to_it() -> None:
    memory = store(5000)
    for number in range(5):
        put_image(memory, memory.size, image_of(number), number, priority=number / 10)
    memory.claim(4)
    memory.score[4] = 0.7
    identity = int(memory.ids[4])
    memory.remove(1)
    assert memory.size == 4
    assert memory.slot_of(identity) == 1
    assert memory.claimed.nonzero().flatten().tolist() == [1]
    assert (int(memory.labels[1]), float(memory.score[1])) == (4, pytest.approx(0.7))
    assert memory.labels[4] == -1
    assert torch.allclose(memory.read(torch.tensor([1])).x[0], image_of(4), atol=0.05)


def test_a_summary_that_grows_makes_room_or_stays_as_it_was() -> None:
    memory = store(700)
    while put_image(memory, memory.size, image_of(memory.size), 0, priority=0.5) is not None:
        pass
    memory.claim(0)
    rough = torch.rand(1, *SHAPE, generator=torch.Generator().manual_seed(0))
    before = memory.size
    memory.rewrite(torch.tensor([0]), rough)
    assert memory.summary[0]
    assert memory.size < before
    assert memory.used <= 700
    for slot in range(memory.size):
        memory.claim(slot)
    held = memory.records[1].clone()
    memory.rewrite(torch.tensor([1]), rough)
    assert torch.equal(memory.records[1], held)
    assert not memory.summary[1]


@given(
    st.sampled_from(["scr+ssd", "er", "scr+dynamic", "gss", "aser"]),
    st.sampled_from(["webp(50)", "jpeg(75)", "uint8", "float32"]),
    st.integers(600, 9000),
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=14),
    st.integers(0, 3),
)
@settings(max_examples=40, deadline=None)
def test_the_budget_holds_after_every_batch(
    method: str, codec: str, budget: int, stream: list[list[int]], seed: int
) -> None:
    """Every image says by its gray level which class it is of, through any codec and a few rounds of summarizing."""
    each = parse_codec(codec).record_bytes(SHAPE)
    if each is not None and each > budget:
        return
    options = {"theta": {"width": 4}, "summarize": {"queue": 2, "interval": 2}} if method == "scr+ssd" else {}
    learner = Learner(method, memory_bytes=budget, codec=codec, seed=seed, net={"width": 8}, **options)
    for number, labels in enumerate(stream):
        x = torch.stack([_marked(label, number * 10 + i) for i, label in enumerate(labels)])
        learner.observe(x, labels)
        memory = learner.memory
        assert learner.footprint()["images"] == sum(len(record) for record in memory.records) <= budget
        held = memory.read(memory.filled())
        levels = held.x.mean((1, 2, 3))
        for level, label in zip(levels.tolist(), held.y.tolist(), strict=True):
            assert level == pytest.approx(_level(learner.labels[label]), abs=0.035)
        if (
            method in ("scr+ssd", "scr+dynamic")
            and isinstance(memory.limit, SlotLimit)
            and memory.limit.slots >= len(learner.labels)
        ):
            assert len(set(held.y.tolist())) == len(learner.labels)


def _level(label: int) -> float:
    return 0.1 + 0.08 * label


def _marked(label: int, number: int) -> torch.Tensor:
    noise = torch.rand(SHAPE, generator=torch.Generator().manual_seed(number)) - 0.5
    return _level(label) + 0.1 * (noise - noise.mean())


def test_slots_follow_from_the_bytes_of_fixed_size_images() -> None:
    learner = Learner("er", memory_bytes="1KB", codec="uint8", net={"width": 8})
    learner.observe(torch.rand(4, *SHAPE), [0, 1, 2, 3])
    assert learner.memory.capacity == 3
    with pytest.raises(InputError, match="256 bytes as uint8"):
        Learner("er", memory_bytes=100, codec="uint8").observe(torch.rand(1, *SHAPE), [0])
    with pytest.raises(InputError, match="give one of them"):
        Learner("er", memory_bytes=1000, memory_size=3)


def test_a_reservoir_over_bytes_keeps_early_and_late_images_alike() -> None:
    """Over many seeds, early and late images of one size stay equally often."""
    kept: Counter[int] = Counter()
    for seed in range(60):
        learner = Learner("er", memory_bytes=700, codec="webp(60)", seed=seed, net={"width": 8})
        learner.observe(image_of(0)[None], [0])
        memory = learner.memory
        while memory.size:
            memory.remove(0)
        ctx = learner._context()
        for _ in range(30):
            learner.policy.store(Batch(image_of(5)[None], torch.tensor([0])), ctx)
        kept.update(int(identity) - 1 for identity in memory.ids[: memory.size])
    early, late = (sum(kept[number] for number in numbers) for numbers in (range(15), range(15, 30)))
    assert 0.75 < early / late < 1.33


def test_a_byte_limited_learner_resumes_exactly(tmp_path) -> None:
    def make() -> Learner:
        return Learner(
            "scr+ssd",
            memory_bytes=2000,
            codec="webp(50)",
            net={"width": 8},
            theta={"width": 4},
            summarize={"queue": 4, "interval": 2},
        )

    rng = np.random.default_rng(0)
    stream = [(rng.random((4, *SHAPE), dtype=np.float32), rng.integers(0, 6, 4).tolist()) for _ in range(14)]
    whole = make()
    for x, y in stream:
        whole.observe(x, y)
    half = make()
    for x, y in stream[:7]:
        half.observe(x, y)
    half.save(tmp_path)
    resumed = Learner.load(tmp_path)
    for x, y in stream[7:]:
        resumed.observe(x, y)
    assert whole.rounds > 0
    assert fingerprint(resumed) == fingerprint(whole)


def test_a_memory_that_has_shrunk_loads_again() -> None:
    """Forty images, then fewer and larger ones: its columns stay as long as they were."""
    memory, fresh = store(20_000), store(20_000)
    for number in range(40):
        put_image(memory, memory.size, image_of(number, 0.0), 0)
    assert memory.size == 40
    for _ in range(30):
        memory.remove(0)
    fresh.load_state(memory.state())
    assert fresh.size == 10
    assert torch.equal(fresh.read(fresh.filled()).x, memory.read(memory.filled()).x)
    assert torch.equal(fresh.ids, memory.ids)


def test_a_memory_has_filled_once_even_if_there_is_room_again() -> None:
    memory = store(3000)
    while memory.free:
        assert not memory.has_filled
        put_image(memory, memory.size, image_of(memory.size), 0)
        memory.seen += 1
    assert memory.has_filled
    memory.remove(0)
    assert memory.free
    assert memory.has_filled


@pytest.mark.parametrize("method", ["scr", "scr+dynamic"])
def test_a_budget_too_small_for_any_image_is_said_when_the_memory_must_answer(method: str) -> None:
    learner = Learner(method, memory_bytes=100, codec="webp(90)", net={"width": 8})
    for seed in range(3):
        learner.observe(torch.rand(2, *SHAPE, generator=torch.Generator().manual_seed(seed)), [0, 1])
    assert learner.memory.size == 0
    with pytest.raises(InputError, match="memory holds no image"):
        learner.predict(torch.rand(1, *SHAPE))


def test_a_budget_too_small_for_the_first_image_leaves_nothing_behind(tmp_path: Path) -> None:
    mine = small_learner("scr+ssd", memory_size=None, memory_bytes=10, codec="webp(50)")
    before = fingerprint(mine)
    with pytest.raises(InputError, match="memory_bytes"):
        mine.observe(toy_images([0], 0), [0])
    assert fingerprint(mine) == before
    mine.save(tmp_path / "l")
    Learner.load(tmp_path / "l")


@pytest.mark.parametrize("codec", ["float32", "uint8", "webp(50)"])
def test_bytes_that_are_held_are_bytes_that_are_counted(codec: str) -> None:
    """A record that shares its bytes with others would keep all of them."""
    memory = Store(8, SHAPE, parse_codec(codec))
    for number in range(8):
        put_image(memory, memory.size, image_of(number), number % 2)
        memory.claim(number)
    memory.rewrite(torch.arange(8), torch.stack([image_of(number) for number in range(8)]))
    for _ in range(6):
        memory.remove(0)
    held = {record.untyped_storage().data_ptr(): record.untyped_storage().nbytes() for record in memory.records}
    assert sum(held.values()) == memory.used


def test_a_class_whose_images_are_large_is_summarized_once_it_has_its_share_of_the_bytes() -> None:
    rough = torch.rand(SHAPE, generator=torch.Generator().manual_seed(0))
    taken = len(parse_codec("webp(60)").encode(rough[None])[0])
    memory = store(3 * taken)
    for number in range(4):
        memory.claim(put_image(memory, memory.size, image_of(number, 0.0), 0, priority=1.0))
    memory.claim(put_image(memory, memory.size, rough, 1, priority=1.0))
    assert taken > 3 * len(memory.records[0])
    assert memory.limit.owns_share(memory, 0, quota=3, classes=2)
    assert memory.limit.owns_share(memory, 1, quota=3, classes=2)
    assert not memory.limit.owns_share(memory, 1, quota=3, classes=1)
    assert not memory.limit.owns_share(memory, 2, quota=3, classes=3)


def test_a_class_that_finds_no_room_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    learner = small_learner("scr+dynamic", memory_size=3)
    for number in range(3):
        learner.observe(toy_images([0, 1, 2, 3, 4], number), [0, 1, 2, 3, 4])
    told = [record.getMessage() for record in caplog.records]
    assert told == ["no room for a class: 3 own the memory. Give it more"]
