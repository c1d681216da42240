"""Links, pipes and folders where files are expected: nothing is written through them, shown, or waited for."""

import os
from pathlib import Path

import pytest

from engram import ExportedMemory, InputError, Learner
from engram.cli import main
from engram.experiment.config import RunConfig
from engram.experiment.folder import RunFolder
from engram.experiment.run import Interrupted, run
from engram.persistence.checkpoint import read_checkpoint, write_checkpoint
from engram.persistence.files import append_line, replace_file
from engram.report.page import page
from engram.streams import load_dataset
from tests.helpers import feed, small_learner, toy_stream
from tests.streams.imagefiles import picture, write

CONFIG = RunConfig("er", tasks=1, images_per_class=10, memory_size=4, settings={"net": {"width": 8}})


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file outside, that must stay as it is and must not be shown."""
    path = tmp_path / "outside"
    path.write_bytes(b"SECRET-OUTSIDE")
    return path


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """The folder of a run that was asked to stop after its first batch."""
    with pytest.raises(Interrupted):
        run(CONFIG, tmp_path / "run", should_stop=lambda: True)
    return tmp_path / "run"


def test_foreseeable_temporary_names_are_not_written_through(tmp_path: Path, outside: Path) -> None:
    folder = tmp_path / "c"
    write_checkpoint(folder, {"number": 0})
    for name in ("CURRENT.partial", "gen-2.partial"):
        (folder / name).symlink_to(outside)
    write_checkpoint(folder, {"number": 1})
    assert read_checkpoint(folder) == {"number": 1}
    for name in ("config.yaml", "report.html", "result.json"):
        (tmp_path / f"{name}.partial").symlink_to(outside)
        (tmp_path / name).symlink_to(outside)
        replace_file(tmp_path / name, b"new")
        assert (tmp_path / name).read_bytes() == b"new"
        assert not (tmp_path / name).is_symlink()
    assert outside.read_bytes() == b"SECRET-OUTSIDE"
    assert not list(tmp_path.glob(".*.partial"))


def test_temporary_names_cannot_be_foreseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    replace = os.replace

    def watch(source: Path, target: Path) -> None:
        seen.append(Path(source).name)
        replace(source, target)

    monkeypatch.setattr(os, "replace", watch)
    for _ in range(2):
        replace_file(tmp_path / "x", b"content")
    assert len(set(seen)) == 2
    assert all(len(name) > 16 for name in seen)


@pytest.mark.parametrize("name", ["events.jsonl", "config.yaml", "lock", "classes.json"])
@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder"])
def test_a_run_refuses_or_replaces_what_is_no_file(name: str, kind: str, interrupted: Path, outside: Path) -> None:
    path = interrupted / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(outside if kind == "link" else outside.with_name("nothing"))
    if name == "classes.json" and kind != "folder":
        run(CONFIG, interrupted, resume=True)
        assert path.is_file()
        assert not path.is_symlink()
    else:
        with pytest.raises((InputError, OSError)):
            run(CONFIG, interrupted, resume=True)
    assert outside.read_bytes() == b"SECRET-OUTSIDE"
    assert not outside.with_name("nothing").exists()


@pytest.mark.parametrize("kind", ["link", "pipe", "linked folder"])
def test_a_picture_that_is_a_link_or_pipe_is_not_in_the_report(kind: str, tmp_path: Path, outside: Path) -> None:
    run(CONFIG, tmp_path / "run")
    assert "data:image/png" in page(tmp_path / "run")
    picture = tmp_path / "run" / "memory" / "task-1.png"
    if kind == "linked folder":
        (tmp_path / "run" / "memory").rename(tmp_path / "elsewhere")
        (tmp_path / "run" / "memory").symlink_to(tmp_path / "elsewhere")
    else:
        picture.unlink()
        os.mkfifo(picture) if kind == "pipe" else picture.symlink_to(outside)
    assert "data:image/png" not in page(tmp_path / "run")


def test_pictures_and_values_are_not_written_through_links(tmp_path: Path, outside: Path) -> None:
    folder = RunFolder(tmp_path / "run").memory
    folder.mkdir(parents=True)
    with pytest.raises(Interrupted):
        run(CONFIG, tmp_path / "run", resume=True, should_stop=lambda: True)
    for name in ("task-1.png", "contact-sheet.png", "memory.safetensors"):
        (folder / name).symlink_to(outside)
    run(CONFIG, tmp_path / "run", resume=True)
    assert outside.read_bytes() == b"SECRET-OUTSIDE"
    assert (folder / "task-1.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["memory", "checkpoint"])
def test_a_run_does_not_write_into_a_linked_folder(name: str, interrupted: Path, tmp_path: Path) -> None:
    if (interrupted / name).exists():
        (interrupted / name).rename(tmp_path / "elsewhere")
    else:
        (tmp_path / "elsewhere").mkdir()
    before = sorted(tmp_path.glob("elsewhere/**/*"))
    (interrupted / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=f"{name} is a link"):
        run(CONFIG, interrupted, resume=True)
    assert sorted(tmp_path.glob("elsewhere/**/*")) == before


@pytest.mark.parametrize("kind", ["onnx", "pt2"])
def test_an_export_is_not_written_through_a_link(kind: str, tmp_path: Path, outside: Path) -> None:
    if kind == "onnx":
        pytest.importorskip("onnxscript")
    learner = feed(small_learner("er"), toy_stream(1, 2))
    for name in (f"m.{kind}", f".m.{kind}.partial", f".m.{kind}.partial.{kind}"):
        (tmp_path / name).symlink_to(outside)
    learner.export(tmp_path / f"m.{kind}")
    assert outside.read_bytes() == b"SECRET-OUTSIDE"
    assert not (tmp_path / f"m.{kind}").is_symlink()


def test_a_pipe_in_the_place_of_a_lock_is_not_waited_for(tmp_path: Path) -> None:
    learner = feed(small_learner("er"), toy_stream(1, 2))
    (tmp_path / ".memory.unfinished-x").mkdir()
    os.mkfifo(tmp_path / ".memory.unfinished-x" / "lock")
    learner.export_memory().write(tmp_path / "memory")
    assert ExportedMemory.read(tmp_path / "memory").labels


def test_a_pipe_that_is_named_as_a_picture_is_refused(tmp_path: Path) -> None:
    learner = feed(small_learner("er"), toy_stream(1, 2))
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(InputError, match="no plain file"):
        learner.predict(tmp_path / "pipe.png")


@pytest.mark.parametrize("kind", ["pipe", "holes", "nested", "pipe as lock"])
def test_a_cache_with_strange_files_is_made_again(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    photos = write(tmp_path / "photos", {f"{name}/{i}.png": picture(i, 16, "PNG") for name in "ab" for i in range(6)})
    first = load_dataset(photos)
    (entry,) = (tmp_path / "cache" / "decoded").iterdir()
    facts = entry / "facts.json"
    if kind == "pipe as lock":
        (entry.parent / ".building-x").mkdir()
        os.mkfifo(entry.parent / ".building-x" / "lock")
    else:
        facts.unlink()
        if kind == "pipe":
            os.mkfifo(facts)
        elif kind == "holes":
            with facts.open("wb") as file:
                file.truncate(8 << 30)
        else:
            facts.write_text("[" * 200_000)
    assert main(["data", "cache"]) == 0
    again = load_dataset(photos)
    assert (again.train_x == first.train_x).all()
    assert main(["data", "cache", "--clear"]) == 0


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_results_and_memories_that_are_no_files_are_refused(
    kind: str, tmp_path: Path, outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def put(path: Path) -> None:
        path.unlink(missing_ok=True)
        os.mkfifo(path) if kind == "pipe" else path.symlink_to(outside)

    feed(small_learner("er"), toy_stream(1, 2)).export_memory().write(tmp_path / "memory")
    put(tmp_path / "memory" / "memory.safetensors")
    with pytest.raises(InputError, match="plain file"):
        ExportedMemory.read(tmp_path / "memory")
    (tmp_path / "runs").mkdir()
    put(tmp_path / "runs" / "result.json")
    for command in ("compare", "report"):
        assert main([command, str(tmp_path / "runs")]) == 1
        assert "plain file" in capsys.readouterr().err


def test_a_line_goes_to_a_plain_file_only(tmp_path: Path, outside: Path) -> None:
    append_line(tmp_path / "log", "one")
    with (tmp_path / "log").open("ab") as file:
        file.write(b"torn")
    append_line(tmp_path / "log", "two")
    assert (tmp_path / "log").read_bytes() == b"one\ntorn\ntwo\n"
    (tmp_path / "link").symlink_to(outside)
    with pytest.raises(InputError, match="a link"):
        append_line(tmp_path / "link", "x")


def test_a_learner_behind_a_linked_lock_is_not_saved(tmp_path: Path, outside: Path) -> None:
    learner = feed(small_learner("er"), toy_stream(1, 1))
    learner.save(tmp_path / "c")
    (tmp_path / "c" / "lock").unlink()
    (tmp_path / "c" / "lock").symlink_to(outside)
    with pytest.raises(ValueError, match="lock is a link"):
        learner.save(tmp_path / "c")
    assert Learner.load(tmp_path / "c").iteration == 1
