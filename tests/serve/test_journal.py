"""The journal: what was appended is there after any crash, and damage is never taken for the end."""

import errno
import os
from pathlib import Path

import pytest

from engram.serve import journal as journal_module
from engram.serve.journal import Journal, JournalError

IDENTITY = bytes(range(16))
CONTENTS = [b"first", b"", b"third" * 10]


def filled(folder: Path, contents: list[bytes] = CONTENTS) -> Journal:
    journal = Journal(folder, IDENTITY, 0)
    assert list(journal.recover()) == []
    for content in contents:
        journal.append(content)
    return journal


def recovered(folder: Path, last: int = 0, identity: bytes = IDENTITY) -> list[tuple[int, bytes]]:
    return [(entry.position, content) for entry, content in Journal(folder, identity, last).recover()]


def only_file(folder: Path) -> Path:
    (path,) = folder.glob("*.log")
    return path


def test_what_was_appended_is_recovered_in_order(tmp_path: Path) -> None:
    filled(tmp_path)
    assert recovered(tmp_path) == [(1, b"first"), (2, b""), (3, b"third" * 10)]


def test_what_the_checkpoint_contains_is_not_recovered(tmp_path: Path) -> None:
    filled(tmp_path)
    assert recovered(tmp_path, last=2) == [(3, b"third" * 10)]


def test_a_record_is_read_back_by_its_entry(tmp_path: Path) -> None:
    journal = filled(tmp_path, [])
    entries = [journal.append(content) for content in CONTENTS]
    assert [journal.read(entry) for entry in entries] == CONTENTS


def test_a_record_is_synced_before_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = filled(tmp_path)
    path = only_file(tmp_path)
    synced: list[tuple[str, int]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), os.fstat(descriptor).st_size))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    journal.append(b"fourth")
    assert synced == [(str(path), path.stat().st_size)]


def test_a_torn_last_record_is_cut_off_at_every_byte(tmp_path: Path) -> None:
    filled(tmp_path)
    path = only_file(tmp_path)
    whole = path.read_bytes()
    end_of_second = len(whole) - len(b"third" * 10) - 20
    for cut in range(end_of_second + 1, len(whole)):
        path.write_bytes(whole[:cut])
        assert recovered(tmp_path) == [(1, b"first"), (2, b"")]
        assert path.read_bytes() == whole[:end_of_second]


def test_a_last_record_of_zeros_is_cut_off(tmp_path: Path) -> None:
    """File systems may have extended a file before its content arrived."""
    filled(tmp_path)
    path = only_file(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(5000))
    assert len(recovered(tmp_path)) == 3
    assert path.read_bytes() == whole


def test_a_file_that_was_only_begun_is_removed(tmp_path: Path) -> None:
    filled(tmp_path)
    for size in (0, 5, 32):
        begun = tmp_path / "000000000004.log"
        begun.write_bytes(only_file(tmp_path).read_bytes()[:size] if size < 32 else bytes(32))
        assert len(recovered(tmp_path)) == 3
        assert not begun.exists()


def test_positions_go_on_after_a_recovery(tmp_path: Path) -> None:
    filled(tmp_path)
    journal = Journal(tmp_path, IDENTITY, 0)
    assert len(list(journal.recover())) == 3
    assert journal.append(b"fourth").position == 4
    assert [position for position, _ in recovered(tmp_path)] == [1, 2, 3, 4]


@pytest.mark.parametrize("offset", [35, 45, 60])
def test_damage_before_acknowledged_batches_is_refused(offset: int, tmp_path: Path) -> None:
    filled(tmp_path)
    path = only_file(tmp_path)
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)
    with pytest.raises(JournalError, match="damaged at byte"):
        recovered(tmp_path)
    assert path.read_bytes() == content


def test_an_image_that_contains_a_record_is_not_taken_for_one(tmp_path: Path) -> None:
    """Somebody who sends bytes that look like a record of another journal does not stop a recovery."""
    foreign = filled(tmp_path / "other")
    look_alike = only_file(tmp_path / "other").read_bytes()
    assert foreign.last == 3
    mine = Journal(tmp_path / "mine", bytes(16), 0)
    list(mine.recover())
    mine.append(b"kept")
    mine.append(look_alike)
    path = only_file(tmp_path / "mine")
    path.write_bytes(path.read_bytes()[:-1])
    assert recovered(tmp_path / "mine", identity=bytes(16)) == [(1, b"kept")]


def test_a_damaged_file_that_is_not_the_last_is_refused(tmp_path: Path) -> None:
    journal = filled(tmp_path)
    path = only_file(tmp_path)
    journal.close_file()
    journal.append(b"fourth")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(JournalError, match="damaged"):
        recovered(tmp_path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    journal = filled(tmp_path)
    journal.close_file()
    journal.append(b"fourth")
    (tmp_path / "000000000001.log").unlink()
    with pytest.raises(JournalError, match="batches 3 to 3 are missing"):
        recovered(tmp_path, last=2)


def test_the_journal_of_another_learner_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    with pytest.raises(JournalError, match="another state of this learner"):
        recovered(tmp_path, identity=bytes(16))


def test_files_are_removed_once_nothing_in_them_is_needed(tmp_path: Path) -> None:
    journal = filled(tmp_path)
    journal.close_file()
    journal.append(b"fourth")
    journal.forget(2)
    assert [path.name for path in sorted(tmp_path.glob("*.log"))] == ["000000000001.log", "000000000004.log"]
    journal.forget(3)
    assert only_file(tmp_path).name == "000000000004.log"
    assert journal.bytes == only_file(tmp_path).stat().st_size
    assert recovered(tmp_path, last=3) == [(4, b"fourth")]


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = filled(tmp_path)
    path = only_file(tmp_path)
    whole = path.read_bytes()
    real = os.write

    def half(descriptor: int, content: memoryview) -> int:
        if len(content) > 10:
            return real(descriptor, content[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(journal_module.os, "write", half)
    with pytest.raises(OSError, match="No space"):
        journal.append(b"x" * 25)
    monkeypatch.undo()
    assert path.read_bytes() == whole
    assert journal.append(b"fourth").position == 4
    assert recovered(tmp_path, last=3) == [(4, b"fourth")]


def test_what_cannot_be_undone_stops_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = filled(tmp_path)

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(journal_module.os, "fsync", fails)
    with pytest.raises(OSError, match="Input/output"):
        journal.append(b"fourth")
    monkeypatch.undo()
    with pytest.raises(OSError, match="restart the server"):
        journal.append(b"fourth")
    assert len(recovered(tmp_path)) == 3
