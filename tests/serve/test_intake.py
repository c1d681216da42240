"""Accepting batches: checked, kept once, in order, and bounded."""

import errno
from pathlib import Path

import numpy as np
import pytest

from engram.base.errors import InputError
from engram.serve.batches import LabeledBatch
from engram.serve.ids import SeenIds, digest
from engram.serve.intake import Intake, Receipt, new_id, split_record
from engram.serve.journal import Journal
from engram.serve.limits import resolve_limits
from engram.serve.refusal import Refusal
from tests.serve.serving import batch_of, labeled

IDENTITY = bytes(range(16))


def intake(folder: Path, ids: SeenIds | None = None, last: int = 0, **limits: int) -> Intake:
    return Intake(Journal(folder, IDENTITY, last), ids or SeenIds(), None, [], resolve_limits(limits))


def test_a_batch_comes_back_from_its_bytes() -> None:
    for images in (batch_of(0)[0], batch_of(0)[0].astype(np.float32) / 255):
        back = LabeledBatch.from_bytes(LabeledBatch(images, ["a", "ü", "c", "d"]).to_bytes())
        assert back.images.dtype == images.dtype
        np.testing.assert_array_equal(back.images, images)
        assert back.labels == ["a", "ü", "c", "d"]


def test_batches_are_handed_over_in_the_order_of_their_positions(tmp_path: Path) -> None:
    way_in = intake(tmp_path)
    receipts = [way_in.accept(f"id-{index}", labeled(index)) for index in range(3)]
    assert receipts == [Receipt(f"id-{index}", index + 1, False, index + 1) for index in range(3)]
    for index in range(3):
        entry = way_in.take(0.0)
        assert entry is not None
        batch_id, content = split_record(way_in.journal.read(entry))
        assert (batch_id, content) == (f"id-{index}", labeled(index).to_bytes())
        way_in.done(0.1)
    assert way_in.take(0.0) is None


def test_a_batch_sent_twice_is_queued_once(tmp_path: Path) -> None:
    way_in = intake(tmp_path)
    way_in.accept("mine", labeled(0))
    assert way_in.accept("mine", labeled(0)) == Receipt("mine", 1, True, 1)
    assert way_in.journal.last == 1


def test_an_id_with_another_batch_is_refused(tmp_path: Path) -> None:
    way_in = intake(tmp_path)
    way_in.accept("mine", labeled(0))
    with pytest.raises(Refusal, match="used for another batch") as refused:
        way_in.accept("mine", labeled(1))
    assert refused.value.status == 409


def test_what_was_accepted_before_a_crash_is_queued_and_known(tmp_path: Path) -> None:
    before = intake(tmp_path)
    for index in range(3):
        before.accept(f"id-{index}", labeled(index))
    after = intake(tmp_path)
    assert after.queued == 3
    assert (after.image_shape, set(after.labels)) == ((1, 16, 16), {f"class {n}" for n in range(4)})
    assert after.accept("id-2", labeled(2)).duplicate
    assert after.accept("id-3", labeled(3)).position == 4


def test_ids_of_a_checkpoint_are_known_without_the_journal(tmp_path: Path) -> None:
    before = intake(tmp_path / "before")
    before.accept("learned", labeled(0))
    before.accept("waiting", labeled(1))
    saved = SeenIds.from_tree(before.begin_file(1))
    after = intake(tmp_path / "emptied", saved, last=1)
    assert after.accept("learned", labeled(0)).duplicate
    assert not after.accept("waiting", labeled(1)).duplicate, "its journal is gone, so it has to be learned"


def test_a_full_queue_is_refused_with_a_time_to_retry(tmp_path: Path) -> None:
    way_in = intake(tmp_path, most_queued=2)
    for index in range(2):
        way_in.accept(f"id-{index}", labeled(index))
    with pytest.raises(Refusal, match="2 batches wait") as refused:
        way_in.accept("more", labeled(2))
    assert refused.value.status == 429
    assert (refused.value.retry_after or 0) > 0
    assert way_in.journal.last == 2
    way_in.done(0.1)
    assert way_in.accept("more", labeled(2)).position == 3


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (LabeledBatch(np.zeros((1, 1, 20, 20), np.uint8), ["class 0"]), "the stream began with"),
        (LabeledBatch(np.full((1, 1, 16, 16), 2, np.float32), ["class 0"]), "must lie in"),
        (LabeledBatch(np.full((1, 1, 16, 16), np.nan, np.float32), ["class 0"]), "NaN"),
        (LabeledBatch(batch_of(0)[0], ["class 0"]), "4 images came with 1 labels"),
        (LabeledBatch(batch_of(0)[0], [1, 2, 3, 4]), "mix integers and strings"),
        (LabeledBatch(batch_of(0)[0][:1], [""]), "visible characters"),
        (LabeledBatch(batch_of(0)[0][:1], ["a\x1b[31m"]), "visible characters"),
        (LabeledBatch(batch_of(0)[0][:1], ["x" * 201]), "visible characters"),
        (LabeledBatch(batch_of(0)[0], [f"new {n}" for n in range(4)]), "would make 8 classes; at most 7"),
    ],
)
def test_what_the_learner_cannot_take_is_not_written(batch: LabeledBatch, reason: str, tmp_path: Path) -> None:
    way_in = intake(tmp_path, most_classes=7)
    way_in.accept("good", labeled(0))
    size = way_in.journal.bytes
    with pytest.raises((Refusal, InputError), match=reason):
        way_in.accept("bad", batch)
    assert (way_in.journal.last, way_in.journal.bytes, way_in.queued) == (1, size, 1)
    assert not way_in.accept("bad", labeled(1)).duplicate


@pytest.mark.parametrize("batch_id", ["", "a b", "ü", "a\0b", "x" * 101, "line\n"])
def test_odd_ids_are_refused(batch_id: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="the id must have"):
        intake(tmp_path).accept(batch_id, labeled(0))


def test_a_full_disk_is_refused_and_the_batch_can_be_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way_in = intake(tmp_path)

    def full(_: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device: /secret/place")

    monkeypatch.setattr(way_in.journal, "append", full)
    with pytest.raises(Refusal, match="could not be written to disk") as refused:
        way_in.accept("mine", labeled(0))
    assert refused.value.status == 503
    assert "secret" not in refused.value.reason
    assert way_in.queued == 0
    monkeypatch.undo()
    assert way_in.accept("mine", labeled(0)) == Receipt("mine", 1, False, 1)


def test_nothing_is_accepted_or_handed_over_after_close_but_duplicates_are_known(tmp_path: Path) -> None:
    way_in = intake(tmp_path)
    way_in.accept("mine", labeled(0))
    way_in.close("the server is shutting down")
    assert way_in.take(0.0) is None
    assert way_in.accept("mine", labeled(0)).duplicate
    with pytest.raises(Refusal, match="shutting down") as refused:
        way_in.accept("other", labeled(1))
    assert refused.value.status == 503


def test_the_oldest_ids_are_forgotten() -> None:
    ids = SeenIds(most=2)
    for position, name in enumerate("abc", 1):
        ids.add(name, digest(b"content"), position)
    assert [ids.find(name) for name in "abc"] == [None, (digest(b"content"), 2), (digest(b"content"), 3)]
    assert len(SeenIds.from_tree(ids.to_tree(3), most=2)) == 2
    assert len(SeenIds.from_tree(SeenIds().to_tree(9))) == 0


def test_new_ids_are_valid_and_differ(tmp_path: Path) -> None:
    assert intake(tmp_path).accept(new_id(), labeled(0)).position == 1
    assert new_id() != new_id()
