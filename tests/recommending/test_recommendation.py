"""What is recommended follows from the measured runs, and from the rule by which pictures get their quality."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engram import InputError, Learner, recommend
from engram.cli import main
from engram.memory import AutoQuality, encoding_anew
from engram.recommending import MeasuredRun, measured_runs, picture_bytes, recommendation

SMALL = MeasuredRun(
    data="made",
    image_size=32,
    tasks=3,
    classes=30,
    images_per_class=300,
    memory_bytes=92_160,
    method="er-ema",
    codec="avif(35)",
    repeats=2,
    accuracy=46.0,
    seeds=3,
    milliseconds=200,
    precision="bf16",
    file="results/a.json",
)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[MeasuredRun]:
    made = [
        SMALL,
        replace(SMALL, repeats=1, accuracy=38.0, milliseconds=100),
        replace(SMALL, repeats=4, accuracy=50.0, milliseconds=400),
        replace(SMALL, repeats=4, accuracy=49.0, milliseconds=390, codec="webp(50)"),
        replace(SMALL, method="scr", accuracy=17.0, codec="uint8", repeats=1),
        replace(SMALL, method="scr", accuracy=60.0, memory_bytes=9_216_000, repeats=1, file="results/b.json"),
    ]
    monkeypatch.setattr(recommendation, "measured_runs", lambda: tuple(made))
    return made


def test_the_most_accurate_method_of_the_nearest_setting_wins(runs: list[MeasuredRun]) -> None:
    near = recommend(90_000, classes=30)
    assert (near.method, near.repeats) == ("er-ema", 2)
    assert near.nearest == runs[0]
    assert near.files == ("results/a.json",)
    assert [(c.repeats, c.accuracy, c.milliseconds) for c in near.choices] == [(1, 38, 100), (2, 46, 200), (4, 50, 400)]
    far = recommend("9MB", classes=30)
    assert (far.method, far.files) == ("scr", ("results/b.json",))


@pytest.mark.parametrize(("seconds", "steps"), [(0.05, 1), (0.1, 1), (0.39, 2), (0.4, 4), (9, 4)])
def test_the_time_of_a_batch_limits_the_steps(runs: list[MeasuredRun], seconds: float, steps: int) -> None:
    assert recommend(90_000, classes=30, seconds=seconds).repeats == steps
    larger = recommend(360_000, classes=30, image_size=64, seconds=4 * seconds)
    assert larger.repeats == steps, "four times the pixels take four times as long"


def test_quality_is_what_the_codec_comes_down_to() -> None:
    """A learner with as many classes as were asked about ends at the quality that was told."""
    for budget, classes in (("1MB", 10), ("150KB", 10), ("30KB", 10)):
        found = recommend(budget, classes=classes)
        assert found.codec == AutoQuality.name
        enough = found.pictures >= encoding_anew.ENOUGH_IMAGES * classes
        assert enough or found.quality == AutoQuality.qualities[-1]
        better = [quality for quality in AutoQuality.qualities if quality > found.quality]
        for quality in better:
            fitting = found.memory_bytes / picture_bytes(f"avif({quality})", 32)
            assert fitting < encoding_anew.ENOUGH_IMAGES * classes
    assert [recommend(budget, classes=10).quality for budget in ("1MB", "150KB", "30KB")] == [70, 50, 35]


def test_bytes_of_pictures_are_those_measured_and_in_proportion_beyond() -> None:
    assert picture_bytes("uint8", 32) == 3072
    assert picture_bytes("uint8", 64) == 3 * 64**2
    assert picture_bytes("avif(35)", 168) == 4 * picture_bytes("avif(35)", 84)
    assert picture_bytes("avif(35)", 16) == picture_bytes("avif(35)", 32) / 4


def test_a_learner_is_made_as_recommended_and_other_arguments_come_first() -> None:
    found = recommend("300KB", classes=100)
    learner = Learner.recommended("300KB", classes=100, net={"width": 8})
    assert learner.method == found.method
    assert learner.options["memory_bytes"] == 300_000
    assert learner.options["codec"] == found.codec
    assert learner.options["repeats"] == found.repeats
    assert Learner.recommended("300KB", classes=100, repeats=1).options["repeats"] == 1


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"memory_bytes": "lots"}, "no size in bytes"),
        ({"memory_bytes": 20}, "not even one picture"),
        ({"classes": 0}, "classes is 0"),
        ({"image_size": 4}, "image_size is 4"),
        ({"seconds": 0.0}, "seconds is 0"),
    ],
)
def test_what_cannot_be_asked_is_refused(asked: dict, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        recommend(**{"memory_bytes": "300KB", "classes": 10} | asked)


def test_the_command_says_what_it_is_based_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "--bytes", "300KB", "--classes", "100", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["memory_bytes"] == 300_000
    assert main(["recommend", "--bytes", "300KB", "--classes", "100"]) == 0
    said = capsys.readouterr().out
    assert f"Learner({told['method']!r}, memory_bytes=300000, codec={told['codec']!r}, repeats=2)" in said
    root = Path(__file__).parents[2]
    for file in told["files"]:
        assert file in said
        assert (root / file).is_file()


def test_every_measured_run_is_of_a_file_that_is_there() -> None:
    assert {run.file for run in measured_runs()} <= {
        f"results/{path.name}" for path in (Path(__file__).parents[2] / "results").glob("*.json")
    }
    assert all(0 < run.accuracy < 100 and run.milliseconds > 0 for run in measured_runs())
