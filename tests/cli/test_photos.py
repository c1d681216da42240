"""`engram learn`, `predict` and `evaluate`: from a folder of photos to answers, stopped and continued."""

import csv
import io
import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engram import Learner, score_images
from engram.cli import main
from engram.experiment import learning
from engram.persistence.teaching import teaching_lock
from tests.helpers import fingerprint, start_engram
from tests.streams.imagefiles import picture, write

COLORS = {"lime": (40, 220, 30), "plum": (150, 30, 160), "sky": (60, 150, 250)}
OPTIONS = ["--method", "er", "--memory-size", "12", "--size", "16"]


def photos(place: Path, *classes: str, count: int = 20) -> Path:
    """Photos that a small net tells apart: noise around the color of their class."""
    files = {}
    for each in classes:
        for index in range(count):
            noise = np.random.default_rng([index, *each.encode()]).normal(0, 25, (18, 24, 3))
            file = io.BytesIO()
            Image.fromarray((noise + COLORS[each]).clip(0, 255).astype(np.uint8)).save(file, "PNG")
            files[f"{each}/{index}.png"] = file.getvalue()
    return write(place, files)


@pytest.fixture(scope="module")
def teaching(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("taught")
    folder = photos(place / "photos", "lime", "plum")
    assert main(["learn", str(folder), "--into", str(place / "mine"), "--repeats", "15", *OPTIONS]) == 0
    return place


@pytest.fixture
def taught(teaching: Path, tmp_path: Path) -> Path:
    """A learner of two classes in `mine`, beside its photos."""
    shutil.copytree(teaching, tmp_path, dirs_exist_ok=True)
    return tmp_path / "mine"


def test_a_learner_is_created_and_continued_with_new_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, more, mine = photos(tmp_path / "photos", "lime"), photos(tmp_path / "more", "sky"), str(tmp_path / "mine")
    assert main(["learn", str(folder), "--into", mine, *OPTIONS]) == 0
    assert "Learned from 20 images. Classes known: 1, new: lime. The memory" in capsys.readouterr().out
    assert main(["learn", str(more), "--into", mine]) == 0
    assert "Classes known: 2, new: sky" in capsys.readouterr().out
    learner = Learner.load(mine)
    assert learner.labels == ["lime", "sky"]
    assert learner.iteration == 4
    assert learner.options["memory_size"] == 12


def test_other_options_than_the_learner_has_are_refused(
    taught: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = ["learn", str(tmp_path / "photos"), "--into", str(taught)]
    assert main([*again, "--memory-size", "99"]) == 1
    assert "was made with memory_size=12, not 99: leave it out" in capsys.readouterr().err
    assert main([*again, "--method", "scr"]) == 1
    assert "is a learner of er, not of scr" in capsys.readouterr().err
    assert main([*again, "--memory-size", "12", "--threads", "1"]) == 0
    assert main(["learn", str(tmp_path / "nowhere"), "--into", str(tmp_path / "new")]) == 1
    assert "nowhere is not there" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    write(tmp_path / "flat", {"0.png": picture(0, 16, "PNG")})
    (tmp_path / "empty").mkdir()
    for wrong, said in (
        (tmp_path / "flat", "no image in a folder of its class"),
        (tmp_path / "flat" / "0.png", "is one image: name a folder"),
        (tmp_path / "empty", "no image in a folder of its class"),
    ):
        assert main(["learn", str(wrong), "--into", str(tmp_path / "new")]) == 1
        assert said in capsys.readouterr().err
        assert not (tmp_path / "new").exists(), "nothing is left behind"
    assert main(["predict", str(tmp_path / "empty"), str(tmp_path / "flat" / "0.png")]) == 1
    assert "holds no learner: name the folder that" in capsys.readouterr().err
    write(tmp_path / "other", {"letter.txt": b"dear"})
    assert main(["learn", str(tmp_path / "photos"), "--into", str(tmp_path / "other")]) == 1
    assert "is no saved learner" in capsys.readouterr().err


def test_the_same_options_may_be_given_again(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", "lime", count=4)
    command = ["learn", str(folder), "--into", str(tmp_path / "mine"), "--method", "er", "--fit", "pad"]
    for _ in range(2):
        assert main([*command, "--memory-bytes", "20KB", "--codec", "webp(50)", "--size", "16"]) == 0
    assert Learner.load(tmp_path / "mine").iteration == 2


def test_predicting_names_the_classes_in_each_form(
    taught: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh = photos(tmp_path / "fresh", "lime", "plum", count=3)
    capsys.readouterr()
    assert main(["predict", str(taught), str(fresh), "--json", "--top", "2"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(answers) == 6
    for answer in answers:
        best, second = answer["classes"]
        assert best["label"] == Path(answer["image"]).parent.name
        assert best["score"] >= second["score"]
        assert best["score"] + second["score"] == pytest.approx(1, abs=1e-4)
    assert main(["predict", str(taught), str(fresh / "plum" / "0.png"), "--csv"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["rank"], row["label"]) == ("1", "plum")
    assert main(["predict", str(taught), str(fresh)]) == 0
    assert capsys.readouterr().out.count("lime") >= 3


def test_what_cannot_be_predicted_is_said(taught: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fresh = write(photos(tmp_path / "fresh", "lime", count=2), {"lime/torn.png": b"torn"})
    (tmp_path / "empty").mkdir()
    capsys.readouterr()
    for wrong, said in (
        (fresh, "torn.png is damaged"),
        (tmp_path / "empty", "no image"),
        (tmp_path / "x", "cannot be"),
    ):
        assert main(["predict", str(taught), str(wrong)]) == 1
        assert said in capsys.readouterr().err
    assert main(["predict", str(taught), str(fresh), "--json", "--skip-damaged"]) == 0
    read = capsys.readouterr()
    assert len(read.out.splitlines()) == 2
    assert "left out" in read.err


def test_evaluating_counts_right_answers(taught: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = photos(tmp_path / "test", "lime", "plum", "sky", count=5)
    capsys.readouterr()
    assert main(["evaluate", str(taught), str(test), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["by_class"] == {"lime": 100, "plum": 100, "sky": 0}
    assert said["accuracy"] == pytest.approx(200 / 3)
    scores = score_images(Learner.load(taught), test)
    assert scores.accuracy == said["accuracy"]
    assert sum(scores.confused.values()) == 5
    assert main(["evaluate", str(taught), str(test)]) == 0
    said = capsys.readouterr().out
    assert "accuracy 66.7 % on 15 images" in said
    assert "never learned, so always wrong: sky" in said


def test_a_stopped_command_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped after the second batch and called again, it is the learner that was never stopped."""
    folder, places = photos(tmp_path / "photos", "lime", "plum"), (tmp_path / "whole", tmp_path / "parts")
    seen: list[int] = []
    learn_into = learning.learn_into

    def stopping(*arguments: Any) -> int:
        *others, _ = arguments
        return learn_into(*others, lambda: len(seen) == 1 or seen.append(1))  # type: ignore[func-returns-value]

    assert main(["learn", str(folder), "--into", str(places[0]), *OPTIONS]) == 0
    with monkeypatch.context() as patched:
        patched.setattr("engram.cli.learn_command.learn_into", stopping)
        main(["learn", str(folder), "--into", str(places[1]), *OPTIONS])
    assert Learner.load(places[1]).iteration == 2
    assert main(["learn", str(folder), "--into", str(places[1])]) == 0
    whole, parts = map(Learner.load, places)
    assert parts.iteration == 4
    assert fingerprint(parts) == fingerprint(whole)


def test_a_killed_command_keeps_its_checkpoint_and_frees_the_learner(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", "lime", "plum", count=120)
    command = ["learn", str(folder), "--into", str(tmp_path / "mine"), "--checkpoint-every", "1b", *OPTIONS]
    process = start_engram(*command)
    deadline = time.monotonic() + 300
    while not (tmp_path / "mine" / "CURRENT").is_file() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    at = Learner.load(tmp_path / "mine").iteration
    assert 1 <= at < 24
    assert main(["learn", str(folder), "--into", str(tmp_path / "mine")]) == 0
    assert Learner.load(tmp_path / "mine").iteration == 24


def test_two_commands_do_not_teach_one_learner_at_a_time(
    taught: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with teaching_lock(taught):
        assert main(["learn", str(tmp_path / "photos"), "--into", str(taught)]) == 1
    assert "another process runs in" in capsys.readouterr().err


def test_what_the_owner_saved_with_a_learner_stays(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", "lime", "plum")
    Learner("er", memory_size=12, net={"width": 8}).save(tmp_path / "mine", extra={"mine": 1})
    assert main(["learn", str(folder), "--into", str(tmp_path / "mine"), "--size", "16", "--threads", "1"]) == 0
    taught, extra = Learner.load_with_extra(tmp_path / "mine")
    assert extra == {"mine": 1}
    assert taught.options["threads"] == 1, "the number of threads may change"


def test_a_learner_that_is_served_is_not_taught_beside_its_journal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = photos(tmp_path / "photos", "lime", "plum")
    Learner("er", memory_size=12).save(tmp_path / "mine", extra={"served": {"position": 1}, "before": None})
    assert main(["learn", str(folder), "--into", str(tmp_path / "mine")]) == 1
    assert "is taught by engram serve" in capsys.readouterr().err
