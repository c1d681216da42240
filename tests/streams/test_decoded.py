"""Images are decoded once, again when their files change, and never seen half-decoded."""

import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engram.cli import main
from engram.streams import DataError, cache_entry, load_dataset
from engram.streams import cache as cache_module
from engram.streams import decoded as module
from tests.streams.imagefiles import picture, write


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "decoded"


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    names = [f"{kind}/{index}.png" for kind in ("cat", "dog") for index in range(6)]
    return write(tmp_path / "pets", {name: picture(index, 16, "PNG") for index, name in enumerate(names)})


def entries(cache: Path) -> list[Path]:
    return sorted(cache.iterdir())


def test_a_second_load_decodes_nothing(pets: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_dataset(str(pets))
    monkeypatch.setattr(module, "decode", lambda *arguments: pytest.fail("decoded again"))
    second = load_dataset(str(pets))
    assert np.array_equal(first.train_x, second.train_x)
    assert isinstance(second.train_x, np.memmap)
    assert not second.train_x.flags.writeable
    assert len(entries(cache)) == 1


def test_sizes_are_kept_apart(pets: Path, cache: Path) -> None:
    assert load_dataset(str(pets), size=16).train_x.shape[-1] == 16
    assert load_dataset(str(pets), size=8).train_x.shape[-1] == 8
    assert len(entries(cache)) == 2


def test_changed_files_are_decoded_again_and_the_old_pixels_forgotten(pets: Path, cache: Path) -> None:
    before = load_dataset(str(pets), size=16)
    (old,) = entries(cache)
    write(pets, {"cat/0.png": picture(99, 16, "PNG")})
    after = load_dataset(str(pets), size=16)
    assert not np.array_equal(before.train_x[0], after.train_x[0])
    assert np.array_equal(before.train_x[1:], after.train_x[1:])
    assert old not in entries(cache)


def test_two_processes_at_once_agree(pets: Path, cache: Path) -> None:
    code = (
        "import hashlib, sys; from engram.streams import load_dataset;"
        "x = load_dataset(sys.argv[1]).train_x; print(hashlib.sha256(x.tobytes()).hexdigest())"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(pets)], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    answers = {process.communicate(timeout=60)[0] for process in processes}
    assert len(answers) == 1
    assert len(answers.pop()) == 65
    assert len(entries(cache)) == 1


def test_an_entry_made_by_another_process_meanwhile_is_used(
    pets: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = load_dataset(str(pets)).train_x
    (entry,) = entries(cache)
    aside = entry.rename(cache.parent / "aside")
    move = cache_module.move_into_place

    def move_after_the_other_finished(*arguments) -> None:
        aside.rename(entry)
        move(*arguments)

    monkeypatch.setattr(cache_module, "move_into_place", move_after_the_other_finished)
    assert np.array_equal(load_dataset(str(pets)).train_x, expected)
    assert entries(cache) == [entry]


def test_a_failed_decoding_leaves_nothing_behind(pets: Path, cache: Path) -> None:
    write(pets, {"cat/0.png": b"no picture"})
    with pytest.raises(DataError, match=r"cat/0.png is damaged"):
        load_dataset(str(pets))
    assert entries(cache) == []


def test_what_a_dead_process_left_behind_goes_away(pets: Path, cache: Path) -> None:
    dead, alive = cache / ".building-dead", cache / ".building-alive"
    for folder in (dead, alive):
        folder.mkdir(parents=True)
    os.utime(dead, (0, 0))
    load_dataset(str(pets))
    assert alive.exists()
    assert not dead.exists()


def test_a_full_disk_is_said(pets: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"No space left.*free some space"):
        load_dataset(str(pets))
    assert entries(cache) == []


def test_without_a_writable_cache_images_are_decoded_into_memory(
    pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING):
        data = load_dataset(str(pets))
    assert len(data.train_x) == 10
    assert "set ENGRAM_CACHE" in caplog.text


def test_what_an_entry_was_made_of_can_be_read(pets: Path, cache: Path) -> None:
    load_dataset(str(pets), size=8)
    (entry,) = entries(cache)
    facts = json.loads((entry / "facts.json").read_text())
    assert facts.pop("sha256") == hashlib.sha256((entry / "pixels.raw").read_bytes()).hexdigest()
    assert facts | {"kept": None} == {
        "source": str(pets.resolve()),
        "size": 8,
        "skip_damaged": False,
        "kept": None,
        "damaged": [],
    }


def test_stray_files_and_half_removed_entries_do_no_harm(pets: Path, cache: Path) -> None:
    load_dataset(str(pets))
    (entry,) = entries(cache)
    (cache / ".DS_Store").touch()
    (entry / "facts.json").unlink()
    write(pets, {"cat/0.png": picture(99, 16, "PNG")})
    assert len(load_dataset(str(pets)).train_x) == 10


def no_facts(entry: Path) -> None:
    (entry / "facts.json").unlink()


def torn_facts(entry: Path) -> None:
    (entry / "facts.json").write_text((entry / "facts.json").read_text()[:30])


def foreign_facts(entry: Path) -> None:
    (entry / "facts.json").write_text('{"kept": [7, 7, 900], "damaged": []}')


def short_pixels(entry: Path) -> None:
    os.truncate(entry / "pixels.raw", 100)


def no_pixels(entry: Path) -> None:
    (entry / "pixels.raw").unlink()


@pytest.mark.parametrize("damage", [no_facts, torn_facts, foreign_facts, short_pixels, no_pixels])
def test_a_damaged_entry_is_made_again_with_one_line(
    damage: Callable[[Path], None], pets: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = np.array(load_dataset(str(pets)).train_x)
    (entry,) = entries(cache)
    damage(entry)
    assert np.array_equal(load_dataset(str(pets)).train_x, expected)
    assert [record.getMessage() for record in caplog.records] == [
        f"the decoded images in {entry} are damaged: they are made again"
    ]
    assert entries(cache) == [entry]
    assert np.array_equal(load_dataset(str(pets)).train_x, expected)


def test_check_notices_zeroed_pixels(pets: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = np.array(load_dataset(str(pets)).train_x)
    (entry,) = entries(cache)
    size = (entry / "pixels.raw").stat().st_size
    with (entry / "pixels.raw").open("r+b") as file:
        file.write(bytes(size // 2))
    assert not load_dataset(str(pets)).train_x[0].any(), "a load does not read all pixels"
    assert main(["data", "check", str(pets)]) == 0
    assert np.array_equal(load_dataset(str(pets)).train_x, expected)
    assert cache_entry.pixels_intact(load_dataset(str(pets)))


def test_decoding_shows_where_it_is(
    pets: Path, cache: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "SAY_AFTER", -1.0)
    load_dataset(str(pets))
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1, "then every ten seconds"
    assert lines[0].startswith(f"decoding pets, only this time into {entries(cache)[0]} (0 MB): 0 of 12 images, about ")


SLOW = """
import sys, time
from engram.streams import decoded
decode = decoded.decode
def slow(*arguments):
    print("decoding", flush=True)
    time.sleep(0.05)
    return decode(*arguments)
decoded.decode = slow
from engram.cli import main
sys.exit(main(sys.argv[1:]))
"""


def start_slowly(pets: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a command that takes minutes to decode the images in `pets`, and wait until it does."""
    for index in range(2000):
        (pets / "cat" / f"more-{index}.png").hardlink_to(pets / "cat" / "0.png")
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout
    while "decoding" not in (line := process.stdout.readline()):
        assert line, process.communicate()
    return process


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_stops_at_once_while_it_decodes(signal_number: int, pets: Path, cache: Path, tmp_path: Path) -> None:
    process = start_slowly(pets, "run", "er", str(pets), "--out", str(tmp_path / "run"))
    began = time.monotonic()
    process.send_signal(signal_number)
    output, _ = process.communicate(timeout=60)
    assert time.monotonic() - began < 8, "all of it would take longer than 16 seconds"
    assert process.returncode == 128 + signal_number
    assert "stopped while images were decoded. Nothing was begun: use the same command again" in output
    assert entries(cache) == []
    assert not (tmp_path / "run").exists()


def test_check_stops_at_once_too(pets: Path, cache: Path) -> None:
    process = start_slowly(pets, "data", "check", str(pets))
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert time.monotonic() - began < 8, "all of it would take longer than 16 seconds"
    assert (process.returncode, "Traceback" in errors) == (130, False)
    assert "Stopped." in output
    assert entries(cache) == []


def test_what_a_killed_decoding_left_is_removed_at_once(pets: Path, tmp_path: Path, cache: Path) -> None:
    process = start_slowly(pets, "data", "check", str(pets))
    process.kill()
    process.communicate()
    (left,) = entries(cache)
    assert left.name.startswith(".building-")
    other = write(tmp_path / "other", {f"a/{index}.png": picture(index, 16, "PNG") for index in range(6)})
    load_dataset(str(other))
    assert left not in entries(cache)


def test_an_entry_that_is_being_made_is_left_alone(pets: Path, tmp_path: Path, cache: Path) -> None:
    process = start_slowly(pets, "data", "check", str(pets))
    (building,) = entries(cache)
    other = write(tmp_path / "other", {f"a/{index}.png": picture(index, 16, "PNG") for index in range(6)})
    load_dataset(str(other))
    cache_entry.clear_cache()
    assert entries(cache) == [building]
    process.kill()
    process.communicate()


def test_a_file_system_without_locks_is_enough(pets: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    assert len(load_dataset(str(pets)).train_x) == 10
    (entry,) = entries(cache)
    assert sorted(path.name for path in entry.iterdir()) == ["facts.json", "pixels.raw"]


def test_the_cache_is_shown_and_cleared(pets: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_dataset(str(pets), size=200)
    (entry,) = entries(cache)
    assert main(["data", "cache"]) == 0
    shown = capsys.readouterr().out
    assert f"1 MB  {entry.name}  from {pets.resolve()}" in shown
    assert f"1 MB in {cache}" in shown
    assert main(["data", "cache", "--clear"]) == 0
    assert "Removed 1 MB from" in capsys.readouterr().out
    assert entries(cache) == []
    assert main(["data", "cache"]) == 0
