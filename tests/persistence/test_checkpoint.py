"""Generations on disk: atomic, checked, with a way back."""

import json
import logging
import os
from pathlib import Path

import pytest
import torch

from engram.base.errors import InputError
from engram.persistence.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from engram.persistence.state import flatten, tree_bytes, unflatten

TREE = {
    "numbers": [1, 2.5, None, True, "text"],
    "by_class": {3: torch.arange(4), 1: {"deep": torch.zeros(0)}},
    "empty": {},
    "float": torch.tensor(1.25),
}


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return a == b and type(a) is type(b)


def test_a_tree_survives_flattening_and_the_disk(tmp_path: Path) -> None:
    tensors, skeleton = flatten(TREE)
    assert same(unflatten(tensors, json.loads(json.dumps(skeleton))), TREE)
    write_checkpoint(tmp_path, TREE)
    assert same(read_checkpoint(tmp_path), TREE)


def test_what_cannot_be_saved_is_named() -> None:
    with pytest.raises(InputError, match=r"\.a\.b: set"):
        flatten({"a": {"b": {1, 2}}})


def test_bytes_of_a_tree() -> None:
    assert tree_bytes(TREE) == 4 * 8 + 4 + 8 * 3 + 4


def test_two_generations_are_kept_and_the_newest_is_read(tmp_path: Path) -> None:
    for number in range(5):
        write_checkpoint(tmp_path, {"number": number})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["CURRENT", "gen-4", "gen-5", "lock"]
    assert read_checkpoint(tmp_path) == {"number": 4}


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "manifest"])
def test_a_damaged_generation_falls_back_to_the_one_before(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(2):
        write_checkpoint(tmp_path, {"number": number, "tensor": torch.arange(9)})
    file = tmp_path / "gen-2" / ("manifest.json" if damage == "manifest" else "state.safetensors")
    content = bytearray(file.read_bytes())
    if damage == "remove":
        file.unlink()
    elif damage == "flip":
        content[-1] ^= 1
        file.write_bytes(content)
    else:
        file.write_bytes(content[: len(content) // 2])
    with caplog.at_level(logging.WARNING):
        assert read_checkpoint(tmp_path)["number"] == 0
    assert "fell back to gen-1" in caplog.text


def test_a_failure_before_naming_leaves_the_old_one_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path, {"number": 0})
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(OSError("disk gone")))
        with pytest.raises(CheckpointError, match=r"disk gone.*saved before is intact"):
            write_checkpoint(tmp_path, {"number": 1})
    assert read_checkpoint(tmp_path) == {"number": 0}
    write_checkpoint(tmp_path, {"number": 2})
    assert read_checkpoint(tmp_path) == {"number": 2}


def test_missing_newer_or_ruined_checkpoints_are_refused_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="CURRENT"):
        read_checkpoint(tmp_path)
    write_checkpoint(tmp_path, {"number": 0})
    manifest = tmp_path / "gen-1" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 99}))
    with pytest.raises(CheckpointError, match="format 99"):
        read_checkpoint(tmp_path)


def test_another_format_is_refused_not_skipped(tmp_path: Path) -> None:
    for number in range(2):
        write_checkpoint(tmp_path, {"number": number})
    manifest = tmp_path / "gen-2" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 99}))
    with pytest.raises(CheckpointError, match="format 99"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["../elsewhere", "/etc", "gen-1/../../x", "gen-x", ""])
def test_a_current_file_cannot_lead_elsewhere(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "checkpoint"
    write_checkpoint(folder, {"number": 0})
    (tmp_path / "elsewhere").mkdir()
    (folder / "CURRENT").write_text(name)
    with caplog.at_level(logging.WARNING):
        assert read_checkpoint(folder) == {"number": 0}
    assert "CURRENT names" in caplog.text


def test_files_of_absurd_size_are_not_read(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {"number": 0})
    for name in ("manifest.json", "state.json", "state.safetensors"):
        with (tmp_path / "gen-1" / name).open("r+b") as file:
            before = (tmp_path / "gen-1" / name).stat().st_size
            file.truncate(1 << 40)
            with pytest.raises(CheckpointError, match=rf"{name} has 1,099,511,627,776 bytes"):
                read_checkpoint(tmp_path)
            file.truncate(before)
    assert read_checkpoint(tmp_path) == {"number": 0}


def test_links_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    for number in range(2):
        write_checkpoint(tmp_path / "c", {"number": number})
    state = tmp_path / "c" / "gen-2" / "state.json"
    state.unlink()
    os.mkfifo(state)
    assert read_checkpoint(tmp_path / "c") == {"number": 0}
    state.unlink()
    state.symlink_to("/dev/zero")
    assert read_checkpoint(tmp_path / "c") == {"number": 0}
    (tmp_path / "c" / "gen-9").symlink_to(tmp_path / "c" / "gen-1")
    (tmp_path / "c" / "CURRENT").write_text("gen-9")
    assert read_checkpoint(tmp_path / "c") == {"number": 0}


def test_the_way_back_is_kept_not_the_damaged_generation(tmp_path: Path) -> None:
    for number in range(3):
        write_checkpoint(tmp_path, {"number": number})
    (tmp_path / "gen-3" / "state.json").write_text("{}")
    assert read_checkpoint(tmp_path) == {"number": 1}
    write_checkpoint(tmp_path, {"number": 9})
    assert sorted(path.name for path in tmp_path.glob("gen-*")) == ["gen-2", "gen-4"]
    (tmp_path / "gen-4" / "state.json").write_text("{}")
    assert read_checkpoint(tmp_path) == {"number": 1}


def test_a_generation_of_another_format_is_kept(tmp_path: Path) -> None:
    for number in range(2):
        write_checkpoint(tmp_path, {"number": number})
    manifest = tmp_path / "gen-1" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 3}))
    before = manifest.read_bytes()
    for number in range(3):
        write_checkpoint(tmp_path, {"number": number})
    assert sorted(path.name for path in tmp_path.glob("gen-*")) == ["gen-1", "gen-4", "gen-5"]
    assert manifest.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"[" * 60_000, b"null", b"[]", b"\xff", b'{"format": 2}', b'{"format": 2, "sha256": 5}']
)
def test_an_old_manifest_of_any_content_does_not_stop_a_save(content: bytes, tmp_path: Path) -> None:
    for number in range(2):
        write_checkpoint(tmp_path, {"number": number})
    (tmp_path / "gen-2" / "manifest.json").write_bytes(content)
    write_checkpoint(tmp_path, {"number": 2})
    assert read_checkpoint(tmp_path) == {"number": 2}
    assert sorted(path.name for path in tmp_path.glob("gen-*")) == ["gen-1", "gen-3"], "the way back is the sound one"


def test_without_current_the_newest_generation_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(2):
        write_checkpoint(tmp_path, {"number": number})
    (tmp_path / "CURRENT").unlink()
    with caplog.at_level(logging.WARNING):
        assert read_checkpoint(tmp_path) == {"number": 1}
    assert "CURRENT" in caplog.text
