"""Logits in the records of a memory: their bytes, their error, where they go, and what is refused."""

import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engram import ExportedMemory, InputError, Learner
from engram.base.batch import Batch
from engram.memory import Store, parse_codec
from engram.memory.logits import add_logits, split_record
from engram.memory.making import make_store
from engram.persistence.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from engram.persistence.restore import saved_memory
from tests.helpers import feed, small_learner, toy_stream

SHAPE = (1, 4, 4)
IMAGE = torch.arange(7, dtype=torch.uint8)
VALUES = st.floats(-30000, 30000, width=32)


def by_hand(record: Tensor) -> tuple[list[int], list[float]]:
    """The image's bytes and the logits, read as the module's docstring says."""
    content = bytes(record.tolist())
    (count,) = struct.unpack("<H", content[-2:])
    if not count:
        return list(content[:-2]), []
    offset, step = struct.unpack("<ee", content[-6:-2])
    return list(content[: -6 - count]), [offset + step * level for level in content[-6 - count : -6]]


@settings(deadline=None)
@given(st.lists(VALUES, max_size=12))
def test_logits_come_back_within_a_step(values: list[float]) -> None:
    record = add_logits(IMAGE, torch.tensor(values))
    assert len(record) == len(IMAGE) + 2 + (4 + len(values) if values else 0)
    image, logits = split_record(record)
    expected_image, expected = by_hand(record)
    assert image.tolist() == expected_image == IMAGE.tolist()
    assert logits.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)
    if values:
        extent, largest = max(values) - min(values), max(map(abs, values))
        error = (logits - torch.tensor(values)).abs().max()
        assert error <= extent / 255 * 0.51 + largest / 1024 + 1e-4


def test_logits_beyond_float16_are_cut() -> None:
    logits = split_record(add_logits(IMAGE, torch.tensor([1e30, -torch.inf, 0.0])))[1]
    assert logits.tolist() == pytest.approx([30000, -30000, 0], abs=200)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"", "no room for its number"),
        (b"\0" * 8 + struct.pack("<H", 9), "no room for the 9 logits"),
        (b"\0" * 9 + struct.pack("<eeH", 0.0, float("inf"), 3), "cannot be"),
        (b"\0" * 9 + struct.pack("<eeH", float("nan"), 1.0, 3), "cannot be"),
        (b"\0" * 9 + struct.pack("<eeH", 0.0, -1.0, 3), "cannot be"),
    ],
)
def test_hostile_records_are_refused(record: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        split_record(torch.tensor(list(record), dtype=torch.uint8))


def memory(**options: bool) -> Store:
    """Four images with the logits of one class more each, then one without."""
    store = Store(5, SHAPE, parse_codec("uint8"), keeps_logits=True, **options)
    for slot in range(4):
        store.put(slot, Batch(torch.full((1, *SHAPE), slot / 255), torch.tensor([slot]), logits=known(slot)[None]), 0)
    store.put(4, Batch(torch.full((1, *SHAPE), 4 / 255), torch.tensor([0])), 0)
    return store


def known(slot: int) -> Tensor:
    return torch.linspace(-1, 1, slot + 1)


def test_a_memory_gives_logits_back_with_their_images() -> None:
    store = memory()
    read = store.read(torch.tensor([2, 4, 0]))
    assert (read.x[:, 0, 0, 0] * 255).round().tolist() == [2, 4, 0]
    assert read.logits is not None
    assert read.logits.isnan().tolist() == [[False] * 3, [True] * 3, [False, True, True]]
    torch.testing.assert_close(read.logits[0], known(2), atol=5e-3, rtol=0)
    rest = store.read(torch.tensor([4]))
    assert rest.logits is not None
    assert rest.logits.shape == (1, 0)
    assert Store(5, SHAPE).read(torch.tensor([], dtype=torch.long)).logits is None


def test_logits_are_counted_and_leave_with_their_image() -> None:
    store = memory()
    assert store.footprint()["images"] == store.used == 5 * 16 + 4 * (2 + 4) + 1 + 2 + 3 + 4 + 2
    store.remove(1)
    assert store.used == 4 * 16 + 3 * (2 + 4) + 1 + 3 + 4 + 2
    read = store.read(store.filled())
    assert read.logits is not None
    assert (~read.logits.isnan()).sum(1).tolist() == [1, 0, 3, 4]


def test_summaries_and_first_images_have_no_logits() -> None:
    store = memory(keep_originals=True)
    store.claim(3)
    store.rewrite(torch.tensor([3]), torch.ones(1, *SHAPE))
    assert store.footprint()["originals"] == 16
    assert store.read_original(3).eq(3 / 255).all()
    read = store.read(torch.tensor([3, 2]))
    assert read.logits is not None
    assert read.logits.isnan().all(1).tolist() == [True, False]
    again = Store(5, SHAPE, parse_codec("uint8"), keep_originals=True, keeps_logits=True)
    again.load_state(store.state())
    assert again.read_original(3).eq(3 / 255).all()
    again.require_finite()


@settings(deadline=None, max_examples=30)
@given(st.integers(40, 300), st.lists(st.tuples(st.integers(0, 9), st.floats(0, 1)), max_size=40))
def test_a_limit_in_bytes_holds_with_logits(budget: int, arriving: list[tuple[int, float]]) -> None:
    options = {"memory_size": None, "memory_bytes": budget, "codec": "uint8"}
    store = make_store(options, SHAPE, keeps_logits=True)
    for classes, priority in arriving:
        logits = torch.randn(1, classes)
        store.put(store.size, Batch(torch.rand(1, *SHAPE), torch.tensor([0]), logits=logits), 0, priority)
        assert store.used == sum(map(len, store.records)) <= budget


def test_a_memory_without_logits_is_not_taken_for_one_with_them() -> None:
    plain = Store(5, SHAPE, parse_codec("uint8"))
    with pytest.raises(ValueError, match="keeps the same"):
        plain.load_state(memory().state())
    with pytest.raises(ValueError, match="keeps the same"):
        memory().load_state(plain.state())


@pytest.mark.parametrize("codec", ["uint8", "webp(50)"])
@pytest.mark.parametrize("limit", [{"memory_size": 8}, {"memory_bytes": 1500, "memory_size": None}])
def test_memories_travel_without_logits(codec: str, limit: dict[str, int], tmp_path: Path) -> None:
    learner = feed(small_learner("der++", codec=codec, **limit), toy_stream(2, 6))
    learner.save(tmp_path / "learner")
    shown, _ = saved_memory(tmp_path / "learner")
    assert torch.equal(shown.read(shown.filled()).x, learner.memory.read(learner.memory.filled()).x)
    exported = learner.export_memory()
    exported.write(tmp_path / "memory")
    back = ExportedMemory.read(tmp_path / "memory")
    assert torch.equal(back.images, learner.memory.read(learner.memory.filled()).x)
    for other in (small_learner("er", codec=codec, **limit), small_learner("der++", codec=codec, **limit)):
        other.adopt(back)
        assert other.memory.size == len(back)
        assert torch.equal(other.memory.read(other.memory.filled()).x, back.images)
        feed(other, toy_stream(2, 6))
    tight = small_learner("der++", codec="uint8", memory_size=None, memory_bytes=256 * len(back))
    with pytest.raises(InputError, match="do not fit"):
        tight.adopt(back)


def test_logits_of_classes_there_are_not_are_refused(tmp_path: Path) -> None:
    learner = feed(small_learner("der++", codec="uint8"), toy_stream(1, 6))
    learner.save(tmp_path / "sound")
    tree = read_checkpoint(tmp_path / "sound")
    packed = tree["learner"]["state"]["_memory"]["records"]
    extra = add_logits(torch.zeros(256, dtype=torch.uint8), torch.arange(3.0))
    packed["data"] = torch.cat([packed["data"][: -packed["sizes"][-1]], extra])
    packed["sizes"][-1] = len(extra)
    write_checkpoint(tmp_path / "hostile", tree)
    with pytest.raises(CheckpointError, match="logits of 3 classes, and there are 2"):
        Learner.load(tmp_path / "hostile")
    with pytest.raises(CheckpointError, match="logits of 3 classes, and there are 2"):
        saved_memory(tmp_path / "hostile")
