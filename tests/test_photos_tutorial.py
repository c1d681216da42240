"""The story of docs/photos.md on real photos, each command in a process of its own."""

import json
import re
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engram import Learner
from engram.streams import load_dataset
from tests.helpers import start_engram

TEXT = (Path(__file__).parents[1] / "docs" / "photos.md").read_text()
TODAY, TOMORROW = ("apple", "bicycle", "castle", "dolphin", "forest", "keyboard"), ("bottle", "tiger")


@pytest.fixture
def home(real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with photos of CIFAR-100: twenty of each class to learn from, and ten to test."""
    data = load_dataset("cifar100", root=real_data)
    for place, classes in (("photos", TODAY), ("new-photos", TOMORROW)):
        for each in classes:
            own = data.train_x[data.train_y == data.class_names.index(each)]
            for folder, images in ((place, own[:20]), ("test-photos", own[20:30])):
                (tmp_path / folder / each).mkdir(parents=True, exist_ok=True)
                for number, image in enumerate(images, 1):
                    Image.fromarray(image.transpose(1, 2, 0)).save(tmp_path / folder / each / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


def engram(line: str) -> str:
    program, *arguments = shlex.split(line)
    assert program == "engram"
    process = start_engram(*arguments)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


def killed(line: str, learner: Path) -> None:
    """Kill a command after it has saved the learner once more."""
    before = (learner / "CURRENT").read_text()
    process = start_engram(*shlex.split(line)[1:], "--checkpoint-every", "1b")
    deadline = time.monotonic() + 120
    while (learner / "CURRENT").read_text() == before:
        assert time.monotonic() < deadline, "nothing was saved"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def images_in(folder: Path) -> Iterator[Path]:
    return iter(sorted(folder.rglob("*.png")))


@pytest.mark.realdata
def test_the_story(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell, _ = blocks("sh")
    learn, predict, evaluate, learn_more, predict_more = shell.strip().splitlines()

    engram(learn)
    learner = Learner.load(home / "mine")
    assert sorted(map(str, learner.labels)) == sorted(TODAY)
    assert learner.footprint()["images"] <= 200_000
    assert learner.memory.size == 120, "every photo fits"
    assert all(name in engram(predict) for name in ("apple", "score"))
    assert "on 80 images" in engram(evaluate)

    seen = learner.iteration
    killed(learn_more, home / "mine")
    assert seen < Learner.load(home / "mine").iteration < seen + 4
    assert "Classes known: 8" in engram(learn_more)
    learner = Learner.load(home / "mine")
    assert learner.iteration == seen + 4, "nothing was learned twice, and nothing was lost"
    assert sorted(map(str, learner.labels)) == sorted(TODAY + TOMORROW)
    assert learner.footprint()["images"] <= 200_000
    assert engram(predict_more).count("\n") == 41

    python, onnx = blocks("python")
    pytest.importorskip("onnxruntime")
    names: dict[str, Any] = {}
    for block in (python, onnx):
        exec(compile(block, "docs/photos.md", "exec"), names)
    assert names["learner"].iteration > learner.iteration, "it learned the photos a second time"
    learner = names["learner"]
    photos = list(images_in(home / "test-photos"))
    answers = json.loads("[" + ",".join(engram("engram predict mine-small test-photos --json").splitlines()) + "]")
    assert [answer["classes"][0]["label"] for answer in answers] == learner.predict(photos).tolist()
    assert onnx_answers(home / "mine.onnx", photos) == learner.predict(photos).tolist()
    check_sizes(home, learner)


@pytest.mark.realdata
@pytest.mark.usefixtures("home")
def test_classes_of_twenty_photos_are_summarized() -> None:
    _, summaries = blocks("sh")
    engram(summaries.strip())
    learner = Learner.load("summaries")
    assert learner.rounds > 0
    assert learner.memory.summary.any()
    assert learner.footprint()["images"] <= 200_000


def onnx_answers(file: Path, photos: list[Path]) -> list[str]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file))
    labels = json.loads(session.get_modelmeta().custom_metadata_map["engram"])["labels"]
    pixels = np.stack([np.asarray(Image.open(photo)).transpose(2, 0, 1) for photo in photos])
    (scores,) = session.run(["scores"], {"images": pixels.astype(np.float32) / 255})
    return [labels[index] for index in scores.argmax(1)]


def check_sizes(home: Path, learner: Learner) -> None:
    """The table of sizes is right to two percent."""
    learner.export(home / "mine.pt2")
    newest = {name: home / name / (home / name / "CURRENT").read_text() for name in ("mine", "mine-small")}
    measured = [sum(file.stat().st_size for file in folder.iterdir()) for folder in newest.values()]
    measured += [(home / f"mine.{kind}").stat().st_size for kind in ("onnx", "pt2")]
    stated = [int(text.replace(",", "")) for text in re.findall(r"\| ([\d,]+) \|$", TEXT, flags=re.MULTILINE)]
    assert stated == pytest.approx(measured, rel=0.02)
