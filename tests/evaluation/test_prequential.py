"""Test, then train."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engram import InputError
from engram.cli import main
from engram.evaluation.prequential import Prequential
from engram.experiment.config import RunConfig
from engram.experiment.run import Interrupted, run
from tests.helpers import fingerprint, small_learner, toy_images, toy_stream


def test_figures_are_those_of_predicting_each_batch_first() -> None:
    """Against a plain loop over a second learner."""
    tested, plain = Prequential(small_learner("er"), window=10), small_learner("er")
    outcomes: list[tuple[int, bool]] = []
    to_date = []
    for x, y in toy_stream(tasks=2, batches=15):
        guesses = plain.predict(x) if plain.labels else [None] * len(y)
        outcomes += [(label, guess == label) for guess, label in zip(guesses, y, strict=True)]
        to_date.append(100 * sum(right for _, right in outcomes) / len(outcomes))
        plain.observe(x, y)
        tested.observe(x, y)
    assert tested.total == len(outcomes) == 120
    assert tested.accuracy == pytest.approx(to_date[-1])
    assert tested.recent == pytest.approx(10 * sum(right for _, right in outcomes[-10:]))
    each = [[right for label, right in outcomes if label == one] for one in range(4)]
    assert tested.balanced == pytest.approx(sum(100 * sum(one) / len(one) for one in each) / 4)
    assert tested.anytime == pytest.approx(sum(to_date) / len(to_date))
    assert 50 < tested.accuracy < 100
    assert fingerprint(tested.learner) == fingerprint(plain)


def test_a_class_never_seen_counts_as_wrong() -> None:
    tested = Prequential(small_learner("er"))
    tested.observe(toy_images([0, 0], 0), [0, 0])
    assert (tested.total, tested.accuracy, tested.anytime) == (2, 0.0, 0.0)


def test_where_nothing_can_be_predicted_yet_all_counts_as_wrong(caplog: pytest.LogCaptureFixture) -> None:
    """A memory too small for any image leaves nothing for class means."""
    tested = Prequential(small_learner("scr", memory_size=None, memory_bytes=100, codec="webp(90)"))
    rough = np.random.default_rng(0).integers(0, 256, (3, 2, 1, 16, 16), dtype=np.uint8)
    for images in rough:
        tested.observe(images, [0, 1])
    assert (tested.total, tested.accuracy) == (6, 0.0)
    assert [record.getMessage() for record in caplog.records if "bytes as webp(90)" in record.getMessage()] != []


def test_one_batch_in_so_many_is_predicted() -> None:
    tested = Prequential(small_learner("er"), every=4)
    for x, y in toy_stream(tasks=1, batches=10):
        tested.observe(x, y)
    assert tested.total == 3 * 4
    assert tested.batches == 10


def test_nothing_is_counted_of_a_batch_that_is_refused() -> None:
    tested = Prequential(small_learner("er"))
    tested.observe(toy_images([0, 1], 0), [0, 1])
    before = tested.summary(), fingerprint(tested.learner)
    with pytest.raises(InputError):
        tested.observe(toy_images([0, 1], 0), [0, "one"])
    assert (tested.summary(), fingerprint(tested.learner)) == before
    with pytest.raises(InputError, match="at least 1"):
        Prequential(small_learner("er"), every=0)


CONFIG = RunConfig(
    "er",
    dataset="digits",
    tasks=2,
    images_per_class=20,
    memory_size=8,
    prequential=2,
    settings={"net": {"width": 8}},
)


def test_a_run_reports_it_also_after_an_interruption(tmp_path: Path) -> None:
    whole = run(CONFIG, tmp_path / "whole")
    assert whole.prequential["images"] == 40
    seen = 0

    def count(event: dict[str, Any]) -> None:
        nonlocal seen
        seen += event["event"] == "batch"

    with pytest.raises(Interrupted):
        run(CONFIG, tmp_path / "broken", on_event=count, should_stop=lambda: seen == 5)
    again = run(CONFIG, tmp_path / "broken", resume=True)
    assert again.prequential == whole.prequential
    assert again.evaluation.matrix == whole.evaluation.matrix


def test_the_command_line_tells_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--tasks", "1", "--images-per-class", "12", "--net.width", "8", "--prequential", "1"]
    assert main(["run", "er", *options, "--out", str(tmp_path / "run")]) == 0
    figures = json.loads((tmp_path / "run" / "result.json").read_text())["prequential"]
    shown = f"before learning from it: accuracy {figures['accuracy']:.1f}, recent {figures['recent']:.1f}"
    assert shown in " ".join(capsys.readouterr().out.split())
