"""Several processes on one checkpoint: savers take turns, loaders always find a whole generation."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from engram.persistence.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from engram.persistence.lock import exclusive_lock
from tests.faults.soak import amount

SAVE = """
import sys
import torch
from pathlib import Path
from engram.persistence.checkpoint import write_checkpoint
folder, identity = Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
number = 0
while sys.argv[3] == "0" or number < int(sys.argv[3]):
    number += 1
    write_checkpoint(folder, {"saver": identity, "number": number, "tensor": torch.full((2000,), float(number))})
    current = (folder / "CURRENT").read_text()
    assert current.startswith("gen-") and current[4:].isdecimal(), current
print(number, flush=True)
"""


def saver(folder: Path, identity: int, saves: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SAVE, str(folder), str(identity), str(saves)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_thousand_loads_beside_saves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_checkpoint(tmp_path, {"saver": 0, "number": 0, "tensor": torch.zeros(2000)})
    process = saver(tmp_path, 1)
    seen, last, loads = set(), 0, 0
    try:
        while loads < amount(1000, 20_000) or len(seen) < 20:
            loads += 1
            tree = read_checkpoint(tmp_path)
            assert (tree["tensor"] == tree["number"]).all()
            assert tree["number"] >= last, "an older generation was taken"
            last = tree["number"]
            seen.add(last)
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()
    assert "fell back" not in caplog.text


def test_two_savers_leave_a_sound_checkpoint_after_each_save(tmp_path: Path) -> None:
    saves = amount(60, 1000)
    processes = [saver(tmp_path, identity, saves) for identity in (1, 2)]
    for process in processes:
        out, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
        assert out == f"{saves}\n"
    tree = read_checkpoint(tmp_path)
    assert tree["number"] == saves
    assert (tmp_path / "CURRENT").read_text() == f"gen-{2 * saves}", "every save has a generation of its own"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "CURRENT",
        f"gen-{2 * saves - 1}",
        f"gen-{2 * saves}",
        "lock",
    ]


def test_a_stuck_saver_is_said_and_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path, {"number": 0})
    monkeypatch.setattr("engram.persistence.lock.LONGEST_WAIT", 0.1)
    began = time.monotonic()
    with exclusive_lock(tmp_path), pytest.raises(CheckpointError, match="another process"):
        write_checkpoint(tmp_path, {"number": 1})
    assert time.monotonic() - began < 5
    assert read_checkpoint(tmp_path) == {"number": 0}
    write_checkpoint(tmp_path, {"number": 2})
    assert read_checkpoint(tmp_path) == {"number": 2}


def test_a_file_system_without_locks_can_still_be_saved_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("engram.persistence.lock.fcntl.flock", refuse)
    write_checkpoint(tmp_path, {"number": 1})
    assert read_checkpoint(tmp_path) == {"number": 1}
    assert "cannot be locked" in caplog.text
