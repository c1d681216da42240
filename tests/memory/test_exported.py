"""Memories travel: to a folder, back, and into a learner of another kind."""

import csv
import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from torch import nn

from engram import ExportedMemory, InputError, Learner, SummaryMemory
from engram.cli import main
from tests.helpers import feed, fingerprint, small_learner, toy_images, toy_stream


@pytest.fixture
def learned() -> Learner:
    learner = small_learner("scr+ssd", slots_per_class=1)
    feed(learner, toy_stream(tasks=2, batches=12))
    assert learner.rounds > 0
    return learner


def test_a_folder_gives_back_exactly_what_was_exported(learned: Learner, tmp_path: Path) -> None:
    exported = learned.export_memory()
    exported.images[0, 0, 0, :2] = torch.tensor([-0.5, 1.7])
    exported.write(tmp_path / "m")
    back = ExportedMemory.read(tmp_path / "m")
    assert torch.equal(back.images, exported.images)
    assert back.labels == exported.labels
    assert back.seen == exported.seen == 96
    assert torch.equal(back.claimed, exported.claimed)
    assert torch.equal(back.summary, exported.summary)
    assert 0 < int(back.summary.sum()) <= int(back.claimed.sum()) < len(back)


def test_pictures_and_table_say_the_same(learned: Learner, tmp_path: Path) -> None:
    exported = learned.export_memory()
    exported.write(tmp_path / "m")
    rows = list(csv.DictReader((tmp_path / "m" / "labels.csv").open()))
    assert [int(row["label"]) for row in rows] == exported.labels
    assert [row["summary"] == "1" for row in rows] == exported.summary.tolist()
    for row, image in zip(rows, exported.images, strict=True):
        pixels = np.asarray(Image.open(tmp_path / "m" / row["file"]))
        assert np.array_equal(pixels, (image[0].clamp(0, 1) * 255).round().numpy())


def test_classes_a_run_numbers_travel_with_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    options = ["--tasks", "1", "--images-per-class", "12", "--memory-size", "4", "--net.width", "8"]
    assert main(["run", "er", "digits", *options, "--out", str(run)]) == 0
    (run / "classes.json").write_text(json.dumps([f"the {digit}" for digit in range(10)]))
    assert main(["memory", "export", str(run), str(tmp_path / "m")]) == 0
    rows = list(csv.DictReader((tmp_path / "m" / "labels.csv").open()))
    assert {row["name"] for row in rows} == {f"the {row['label']}" for row in rows}
    capsys.readouterr()
    assert main(["memory", "show", str(run)]) == 0
    assert f"the {rows[0]['label']}" in capsys.readouterr().out


def test_a_summary_stays_one_through_a_memory_without_claims(learned: Learner) -> None:
    """So that it never trains a summarizing net later on."""
    between = small_learner("er")
    between.adopt(learned.export_memory())
    assert torch.equal(between.export_memory().summary, learned.export_memory().summary)
    last = small_learner("scr+ssd")
    last.adopt(between.export_memory())
    summaries = last.memory.summary.nonzero().flatten().tolist()
    assert summaries
    assert not set(summaries) & set(last.memory.real_images().tolist())


def test_a_learner_that_adopts_a_memory_holds_it(learned: Learner) -> None:
    mine = small_learner("scr+ssd", seed=5)
    mine.adopt(learned.export_memory())
    assert mine.labels == list(dict.fromkeys(learned.export_memory().labels))
    there, here = learned.export_memory(), mine.export_memory()
    assert torch.equal(there.images, here.images)
    assert there.labels == here.labels
    assert torch.equal(there.claimed, here.claimed)
    assert torch.equal(there.summary, here.summary)
    assert mine.memory.seen == 96
    feed(mine, toy_stream(tasks=3, batches=12))
    assert set(mine.labels) == set(range(6))


def test_a_memory_adopts_too_and_a_reservoir_claims_nothing(learned: Learner) -> None:
    memory = SummaryMemory(memory_size=8, theta={"width": 8})
    memory.adopt(learned.export_memory())
    assert len(memory.sample(8)[0]) == 8
    mine = small_learner("er")
    mine.adopt(learned.export_memory())
    assert not mine.memory.claimed.any()
    assert mine.memory.size == 8


def test_rehearsing_an_adopted_memory_teaches_a_fresh_net(learned: Learner) -> None:
    mine = Learner("er", memory_size=8, net=torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(256, 32)))
    mine.adopt(learned.export_memory())
    mine.rehearse(60)
    wanted = [0, 1, 2, 3] * 10
    predicted = mine.predict(toy_images(wanted, 99))
    assert np.mean(np.array(predicted) == wanted) > 0.9
    assert mine.iteration == 0


def test_adopted_classes_are_past_ones(learned: Learner) -> None:
    """The first new class after them is a change of task, inferred or said."""
    exported = learned.export_memory()
    inferred, said = small_learner("ocm"), small_learner("ocm")
    for mine in (inferred, said):
        mine.adopt(exported)
        mine.rehearse(2)
    said.boundary()
    for mine in (inferred, said):
        mine.observe(toy_images([4, 5], 0), [4, 5])
        assert mine.scheme.finished_classes == 4


def test_rehearsing_needs_counts(learned: Learner) -> None:
    for steps, batch in ((-1, 10), (1, 0)):
        with pytest.raises(InputError, match=r"(steps|batch) is"):
            learned.rehearse(steps, batch)


def test_an_empty_memory_has_nothing_to_export() -> None:
    empty = small_learner("fine-tune", scheme=None)
    empty.observe(toy_images([0], 0), [0])
    with pytest.raises(InputError, match="nothing to export"):
        empty.export_memory()


def test_what_does_not_fit_or_comes_late_is_refused_unchanged(learned: Learner) -> None:
    exported = learned.export_memory()
    for changes in ({"memory_size": 7}, {"memory_size": None, "memory_bytes": 900, "codec": "webp(50)"}):
        mine = small_learner("scr+ssd", **changes)
        before = fingerprint(mine)
        with pytest.raises(InputError, match="do not fit"):
            mine.adopt(exported)
        assert fingerprint(mine) == before
    before = fingerprint(learned)
    with pytest.raises(InputError, match="observed something already"):
        learned.adopt(exported)
    assert fingerprint(learned) == before
    empty = small_learner("fine-tune", scheme=None)
    empty.observe(toy_images([0], 0), [0])
    with pytest.raises(InputError, match="nothing to rehearse"):
        empty.rehearse(1)


def test_adopted_bytes_hold_to_the_budget(learned: Learner) -> None:
    mine = small_learner("scr+ssd", memory_size=None, memory_bytes=4000, codec="webp(50)")
    mine.adopt(learned.export_memory())
    assert mine.memory.size == 8
    for x, y in toy_stream(tasks=3, batches=12):
        mine.observe(x, y)
        assert mine.memory.used <= 4000


def test_a_memory_of_bytes_is_taken_over_as_it_was(tmp_path: Path) -> None:
    """Also by a memory of the same size, and without being encoded again."""
    options = {"memory_size": None, "memory_bytes": 3000, "codec": "webp(50)"}
    learner = feed(small_learner("scr+ssd", **options), toy_stream(tasks=2, batches=12))
    learner.export_memory().write(tmp_path / "m")
    mine = small_learner("scr+ssd", **options)
    mine.adopt(ExportedMemory.read(tmp_path / "m"))
    assert [record.tolist() for record in mine.memory.records] == [one.tolist() for one in learner.memory.records]
    assert mine.memory.labels[: mine.memory.size].tolist() == learner.memory.labels[: learner.memory.size].tolist()
    exported = learner.export_memory()
    with pytest.raises(InputError, match="need one string of bytes an image"):
        dataclasses.replace(exported, records=exported.records[1:])
    with pytest.raises(InputError, match=r"a record is no webp\(50\) image"):
        dataclasses.replace(exported, records=[record[:9] for record in exported.records])


@pytest.mark.parametrize(
    "limit", [{"memory_size": 20}, {"memory_size": None, "memory_bytes": 3360, "codec": "webp(50)"}]
)
def test_adopted_images_keep_their_place_in_a_long_stream(limit: dict[str, Any]) -> None:
    """Twenty that stayed of 2,000 have a chance of ten in eleven each to outstay 200 more."""
    images = torch.as_tensor(toy_images([0, 1] * 10, 0)).float() / 255
    none = torch.zeros(20, dtype=torch.bool)
    left = []
    for seed in range(5):
        mine = small_learner("er", seed=seed, **limit)
        mine.adopt(ExportedMemory(images, [0, 1] * 10, none, none, seen=2000))
        assert mine.memory.size == 20
        for number in range(20):
            mine.observe(toy_images([2, 3] * 5, number), [2, 3] * 5)
        left.append(int((mine.memory.labels[: mine.memory.size] < 2).sum()))
    assert 14 <= mean(left) <= 19.5


def damaged(folder: Path, kind: str) -> None:
    path = folder / "memory.safetensors"
    tensors = safetensors.torch.load_file(path)
    facts = {"format": "1", "labels": json.dumps([0] * 8), "seen": "96"}
    if kind == "gone":
        path.unlink()
        return
    if kind == "torn":
        path.write_bytes(path.read_bytes()[:500])
        return
    if kind == "nan":
        tensors["images"][0] = torch.nan
    if kind == "labels":
        facts["labels"] = json.dumps([0] * 7)
    if kind == "mixed":
        facts["labels"] = json.dumps([0] * 7 + ["a"])
    if kind == "flags":
        tensors["claimed"] = torch.zeros(8)
    if kind == "format":
        facts["format"] = "2"
    safetensors.torch.save_file(tensors, path, metadata=facts)


@pytest.mark.parametrize("kind", ["gone", "torn", "nan", "labels", "mixed", "flags", "format"])
def test_damaged_folders_are_refused(kind: str, learned: Learner, tmp_path: Path) -> None:
    learned.export_memory().write(tmp_path / "m")
    damaged(tmp_path / "m", kind)
    with pytest.raises(InputError, match=r"memory\.safetensors"):
        ExportedMemory.read(tmp_path / "m")


EXPORT_SLOWLY = """
import sys, time
from pathlib import Path
from engram import ExportedMemory
written = ExportedMemory._write_into
def slowly(self, folder, names):
    written(self, folder, names)
    print("writing", flush=True)
    time.sleep(60)
ExportedMemory._write_into = slowly
ExportedMemory.read(sys.argv[1]).write(sys.argv[2])
"""


def test_what_a_killed_export_left_is_removed_and_one_at_work_is_left_alone(learned: Learner, tmp_path: Path) -> None:
    memory = learned.export_memory()
    memory.write(tmp_path / "source")
    others = tmp_path / ".m-of-mine"
    others.mkdir()
    command = [sys.executable, "-c", EXPORT_SLOWLY, str(tmp_path / "source"), str(tmp_path / "m")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        memory.write(tmp_path / "m")
        (unfinished,) = tmp_path.glob(".m.unfinished-*")
        process.kill()
    shutil.rmtree(tmp_path / "m")
    memory.write(tmp_path / "m")
    assert not unfinished.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".m-of-mine", "m", "source"]
    assert "lock" not in {path.name for path in (tmp_path / "m").iterdir()}


def test_an_existing_folder_is_left_alone(learned: Learner, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    with pytest.raises(InputError, match="exists already"):
        learned.export_memory().write(tmp_path / "m")
    assert list((tmp_path / "m").iterdir()) == []


def test_there_and_back_on_the_command_line(
    learned: Learner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learned.save(tmp_path / "saved")
    assert main(["memory", "export", str(tmp_path / "saved"), str(tmp_path / "m")]) == 0
    assert "8 images of 4 classes" in capsys.readouterr().out
    options = ["--method", "er", "--steps", "30", "--width", "8", "--codec", "uint8"]
    assert main(["memory", "import", str(tmp_path / "m"), str(tmp_path / "new"), *options]) == 0
    mine = Learner.load(tmp_path / "new")
    assert mine.memory.size == 8
    assert mine.method == "er"
    assert mine.options["codec"] == "uint8"
    predicted = mine.predict(toy_images([0, 1, 2, 3], 99))
    assert set(predicted) <= {0, 1, 2, 3}
    assert main(["memory", "import", str(tmp_path / "nowhere"), str(tmp_path / "x")]) == 1
    assert "no exported memory" in capsys.readouterr().err


def test_what_has_no_net_of_ours_is_shown_and_exported_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    memory = SummaryMemory(memory_bytes="4KB", codec="webp(50)", theta={"width": 8})
    own = Learner("er", memory_size=4, net=nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(2)))
    for x, y in toy_stream(tasks=1, batches=3):
        memory.update(x, y)
        own.observe(x, y)
    for name, keeper, remark in (("memory", memory, "the limit is 4,000 bytes"), ("own", own, "load it in Python")):
        keeper.save(tmp_path / name)
        assert main(["memory", "show", str(tmp_path / name)]) == 0
        assert remark in " ".join(capsys.readouterr().out.split())
        assert main(["memory", "export", str(tmp_path / name), str(tmp_path / f"{name}-out")]) == 0
        exported = ExportedMemory.read(tmp_path / f"{name}-out")
        assert torch.equal(exported.images, keeper.export_memory().images)
        assert exported.labels == keeper.export_memory().labels


def test_an_imported_memory_may_be_limited_in_bytes(learned: Learner, tmp_path: Path) -> None:
    learned.export_memory().write(tmp_path / "m")
    limits = ["--steps", "0", "--width", "8", "--codec", "webp(50)", "--memory-bytes", "6KB"]
    assert main(["memory", "import", str(tmp_path / "m"), str(tmp_path / "new"), *limits]) == 0
    mine = Learner.load(tmp_path / "new")
    assert (mine.options["memory_bytes"], mine.memory.size) == (6000, 8)


def test_an_adopted_memory_is_encoded_on_a_scale_that_holds_it() -> None:
    given = SummaryMemory(memory_size=4, theta={"width": 8})
    given.update(toy_images([0, 1] * 2, 0), [0, 1] * 2)
    taking = SummaryMemory(memory_size=4, codec="latent8", theta={"width": 8})
    taking.adopt(given.export_memory())
    assert torch.allclose(taking.export_memory().images, given.export_memory().images, atol=0.01)
