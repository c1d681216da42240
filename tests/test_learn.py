"""`Learner.learn` takes any source, labels of every kind come back, and a learner says so if it could not summarize."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engram import InputError, Learner
from engram.base.validation import check_labels, label_array
from tests.helpers import SMALL, fingerprint, small_learner, toy_images
from tests.streams.imagefiles import picture, write


def photos(place: Path, *classes: str, count: int = 12) -> Path:
    return write(
        place, {f"{each}/{i}.png": picture(97 * ord(each[0]) + i, 20, "PNG") for each in classes for i in range(count)}
    )


def test_tomorrows_folder_adds_its_own_classes_by_their_names(tmp_path: Path) -> None:
    learner = small_learner(memory_size=16)
    assert learner.learn(photos(tmp_path / "today", "apple", "bicycle"), size=16) == 24
    assert learner.learn(photos(tmp_path / "tomorrow", "apple", "tiger")) == 24, "the size is known by now"
    assert sorted(learner.labels) == ["apple", "bicycle", "tiger"]
    assert learner.image_shape == (3, 16, 16)
    with pytest.raises(InputError, match="mix integers and strings"):
        learner.observe(np.zeros((1, 3, 16, 16), np.uint8), [0])


def test_learning_a_source_is_observing_its_batches() -> None:
    x, y = toy_images([0, 1] * 10, 0), [0, 1] * 10
    batches = [(x[start : start + 4], y[start : start + 4]) for start in range(0, 20, 4)]
    one, other = small_learner(), small_learner()
    assert one.learn(iter(batches)) == 20
    for batch in batches:
        other.observe(*batch)
    assert fingerprint(one) == fingerprint(other)


def test_progress_is_shown_on_request_only(capsys: pytest.CaptureFixture[str]) -> None:
    batches = [(toy_images([0, 1], index), [0, 1]) for index in range(3)]
    small_learner("er").learn(batches)
    assert capsys.readouterr().out == ""
    small_learner("er").learn(batches, progress=True)
    assert "learning" in capsys.readouterr().out


def test_image_files_are_predicted_by_their_paths(tmp_path: Path) -> None:
    place = photos(tmp_path / "pets", "cat", "dog", count=6)
    learner = small_learner("er", fit="pad")
    learner.learn(place, size=16)
    paths = sorted(place.rglob("*.png"))
    answers = learner.predict(paths)
    assert answers.shape == (12,)
    assert set(answers) <= {"cat", "dog"}
    assert learner.predict(str(paths[0])) == answers[:1]
    assert learner.predict_proba(paths).shape == (12, 2)


@pytest.mark.parametrize(
    "kind", ["pandas", "categorical", "one column", "pyarrow", "chunked", "Hugging Face", "numpy", "range"]
)
def test_labels_of_every_kind_are_taken(kind: str) -> None:
    names: Any = ["cat", "dog", "cat"]
    if kind == "one column":
        given = pytest.importorskip("pandas").DataFrame({"label": names})
    elif kind == "Hugging Face":
        given = pytest.importorskip("datasets").Dataset.from_dict({"label": names})["label"]
    elif kind in ("pandas", "categorical"):
        pandas = pytest.importorskip("pandas")
        given = pandas.Series(names, index=[5, 6, 7], dtype="category" if kind == "categorical" else None)
    elif kind in ("pyarrow", "chunked"):
        pyarrow = pytest.importorskip("pyarrow")
        given = pyarrow.array(names) if kind == "pyarrow" else pyarrow.chunked_array([names[:2], names[2:]])
    elif kind == "numpy":
        given = np.array(names, dtype=object)
    else:
        names, given = [0, 1, 2], range(3)
    assert check_labels(given, 3, []) == names


@pytest.mark.parametrize("wrong", [{"a": 1}, {"a", "b"}, "ab", b"ab", 3, iter("ab")])
def test_what_has_no_order_is_no_sequence_of_labels(wrong: Any) -> None:
    with pytest.raises(InputError, match="labels must be a sequence"):
        check_labels(wrong, 2, [])


def test_answers_are_arrays_of_the_labels_kind() -> None:
    assert label_array([3, 1]).dtype == np.int64
    assert label_array(["dog", "bicycle"]).tolist() == ["dog", "bicycle"]
    assert label_array([1 << 80]).tolist() == [1 << 80]


def test_classes_with_sixty_images_are_summarized() -> None:
    learner = Learner("scr+ssd", memory_size=8, theta={"width": 8}, **SMALL)
    x, y = toy_images([0, 1] * 60, 0), ["apple", "bicycle"] * 60
    learner.learn((x, y))
    assert learner.rounds > 0
    assert learner.memory.summary.any()


def test_a_learner_that_could_not_summarize_says_why_once(caplog: pytest.LogCaptureFixture) -> None:
    learner = Learner("scr+ssd", memory_size=8, theta={"width": 8}, summarize={"ready": 60}, **SMALL)
    batches = [(toy_images([0, 1], index), [0, 1]) for index in range(10)]
    with caplog.at_level(logging.WARNING):
        learner.learn(batches)
        learner.learn(batches)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "a class needs 60 images in its queue, and none has more than 10: lower summarize.ready" in said[0]
