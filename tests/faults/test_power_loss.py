"""Power lost at any write, and a disk that is full at any write: the old state or the new one, never neither."""

import errno
import shutil
from pathlib import Path

import pytest
import torch

from engram.persistence.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from tests.faults.disk import Operation, Recorder, after_power_loss


def tree(number: int) -> dict:
    return {"number": number, "tensor": torch.full((50,), float(number))}


def number_in(folder: Path) -> int:
    loaded = read_checkpoint(folder)
    assert (loaded["tensor"] == loaded["number"]).all()
    return int(loaded["number"])


@pytest.fixture
def saved_twice(tmp_path: Path) -> Path:
    for number in range(2):
        write_checkpoint(tmp_path / "start", tree(number))
    return tmp_path / "start"


def recorded_save(folder: Path) -> list[Operation]:
    """The operations of a third save, done to a copy of `folder` and named as if done to it."""
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    with pytest.MonkeyPatch.context() as patch:
        recorder = Recorder(patch)
        write_checkpoint(copy, tree(2))

    def moved(path: Path) -> Path:
        return folder / path.relative_to(copy)

    return [
        Operation(each.kind, moved(each.path), moved(each.target) if each.target else None, each.content)
        for each in recorder.operations
        if each.path != copy.parent
    ]


def test_power_may_be_lost_at_any_moment_of_a_save(saved_twice: Path, tmp_path: Path) -> None:
    operations = recorded_save(saved_twice)
    kinds = [operation.kind for operation in operations]
    assert kinds.count("write") == 4
    assert kinds.count("rename") == 2
    assert kinds.count("remove") == 1
    states = 0
    for length in range(len(operations) + 1):
        for world in after_power_loss(operations[:length], saved_twice, tmp_path / "worlds"):
            states += 1
            assert number_in(world) in (1, 2), operations[length - 1]
    assert states > 40
    for world in after_power_loss(operations, saved_twice, tmp_path / "worlds"):
        assert number_in(world) == 2, "a save that returned is there for good"


@pytest.mark.parametrize("left_out", [0, 1, 2, 3, 6])
def test_leaving_out_a_sync_would_be_noticed(left_out: int, saved_twice: Path, tmp_path: Path) -> None:
    """The simulation is strict enough: without that sync, some state after a finished save is not the new one. (Without
    those of the folder before, or the content of, CURRENT, reading finds the newest generation all the same.)"""
    operations = recorded_save(saved_twice)
    syncs = [index for index, operation in enumerate(operations) if operation.kind == "sync"]
    assert len(syncs) == 7
    del operations[syncs[left_out]]
    numbers = {number_in(world) for world in after_power_loss(operations, saved_twice, tmp_path / "worlds")}
    assert 1 in numbers


def test_a_first_save_survives_power_loss_with_the_folders_made_for_it(tmp_path: Path) -> None:
    (tmp_path / "start").mkdir()
    (tmp_path / "copy").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        recorder = Recorder(patch)
        write_checkpoint(tmp_path / "copy" / "run" / "checkpoint", tree(2))
    moved = [
        Operation(
            each.kind,
            tmp_path / "start" / each.path.relative_to(tmp_path / "copy"),
            tmp_path / "start" / each.target.relative_to(tmp_path / "copy") if each.target else None,
            each.content,
        )
        for each in recorder.operations
    ]
    worlds = 0
    for world in after_power_loss(moved, tmp_path / "start", tmp_path / "worlds"):
        worlds += 1
        assert number_in(world / "run" / "checkpoint") == 2
    assert worlds


def test_a_disk_full_at_any_write(saved_twice: Path) -> None:
    total = len(recorded_save(saved_twice))
    shutil.rmtree(saved_twice.with_name("copy"))
    refused = 0
    for moment in range(total):
        folder = saved_twice.with_name(f"full-{moment}")
        shutil.copytree(saved_twice, folder)
        left = moment

        def fail(operation: Operation) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                raise OSError(errno.ENOSPC, "No space left on device")

        with pytest.MonkeyPatch.context() as patch:
            Recorder(patch, fail)
            try:
                write_checkpoint(folder, tree(2))
            except CheckpointError as error:
                refused += "No space left" in str(error)
        assert number_in(folder) in (1, 2)
        assert not list(folder.glob("*.partial"))
        write_checkpoint(folder, tree(3))
        assert number_in(folder) == 3
    assert refused >= total - 1
