"""What callers may ask of a learner, a configuration or a source at the edges of what is allowed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from engram import InputError, Learner, RunConfig
from engram.augmentations import ViewAugmentation, augment_view
from engram.base.precision import resolve_precision
from engram.cli import main
from engram.methods import find_method
from engram.persistence.checkpoint import CheckpointError
from engram.persistence.restore import saved_memory
from engram.sklearn import EngramClassifier
from tests.helpers import small_learner, toy_images

X, Y = toy_images([0, 1] * 4, 0), [0, 1] * 4


def test_a_limit_that_is_none_leaves_that_of_the_method() -> None:
    for name in ("memory_size", "memory_bytes", "total_bytes"):
        assert Learner("er-ema", **{name: None}).options["memory_bytes"] == 300_000  # type: ignore[misc]
    assert Learner("er-ema", memory_size=5, memory_bytes=None).options["memory_bytes"] is None


def test_a_classifier_takes_what_it_is_not_given_from_its_method() -> None:
    classifier = EngramClassifier("er-ema", options={"net": {"width": 8}}).fit(X, Y)
    assert classifier.learner_.options["memory_bytes"] == 300_000
    assert classifier.learner_.options["codec"] == "avif(35)"


def test_only_the_two_nets_can_be_asked() -> None:
    learner = small_learner("er", average=0.9)
    learner.observe(X, Y)
    with pytest.raises(InputError, match="answer_from is 'nett'"):
        learner.scores(X, answer_from="nett")  # type: ignore[arg-type]


@pytest.mark.parametrize(("steps", "batch"), [(1.5, 4), (1, 2.5), (-1, 4), (1, 0)])
def test_rehearsals_are_whole_numbers(steps: Any, batch: Any) -> None:
    learner = small_learner("er")
    learner.observe(X, Y)
    with pytest.raises(InputError, match=r"steps is|batch is"):
        learner.rehearse(steps, batch)


def test_runs_that_learn_from_the_average_differ_by_it() -> None:
    one, other = (RunConfig("mkd", average=average, answer_from="net").identity() for average in (0.9, 0.999))
    assert one != other
    one, other = (RunConfig("er", average=average, answer_from="net").identity() for average in (0.9, 0.999))
    assert one == other, "an average that nothing reads changes no result"


def test_another_limit_replaces_that_of_a_configuration() -> None:
    changed = RunConfig("er", memory_size=50).replace(memory_bytes=3000)
    assert (changed.options["memory_size"], changed.options["memory_bytes"]) == (None, 3000)
    assert changed.replace(seed=3).options["memory_bytes"] == 3000


def test_a_method_that_is_meant_can_be_had() -> None:
    with pytest.raises(InputError) as refused:
        find_method("fine_tune+ssd")
    assert "fine-tune+ssd" not in str(refused.value).split(":", 1)[1]


@pytest.mark.parametrize("crop", ["none", "published", "aligned"])
@pytest.mark.parametrize("flip", [0.0, 0.5])
def test_views_have_the_size_that_was_asked_for(crop: Any, flip: float) -> None:
    view = ViewAugmentation(crop=crop, flip=flip, jitter=0.0, gray=0.0)
    images = torch.rand(4, 3, 16, 16)
    assert augment_view(images, view, torch.Generator().manual_seed(0), 12).shape == (4, 3, 12, 12)
    whole = augment_view(torch.full((2, 3, 16, 16), 0.5), view, torch.Generator().manual_seed(0), 12)
    assert crop != "none" or torch.allclose(whole, torch.tensor(0.5))


class Stream(IterableDataset[Any]):
    """Two batches, and no length."""

    def __iter__(self) -> Iterator[Any]:
        for image, label in zip(X, Y, strict=True):
            yield torch.from_numpy(np.asarray(image)), label


def test_a_loader_without_a_length_is_learned() -> None:
    learner = small_learner("er")
    assert learner.learn(DataLoader(Stream(), batch_size=4)) == 8


def test_the_home_folder_of_a_configuration_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    chosen = {"method": "er", "dataset": "digits", "tasks": 1, "images_per_class": 4, "memory_size": 2}
    (tmp_path / "mine.yaml").write_text(json.dumps(chosen | {"settings": {"net": {"width": 8}}}))
    assert main(["run", "--config=~/mine.yaml", "--out", str(tmp_path / "run")]) == 0
    assert Learner.load(tmp_path / "run").method == "er"


def test_a_net_from_scratch_on_latents_moves_no_pixels() -> None:
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(256, 6))
    assert Learner("gdumb", net=net, freeze="all").settings["classifier"]["shift"] == 0
    with pytest.raises(InputError, match="shift changes pixels"):
        Learner("gdumb", net=net, freeze="all", classifier={"shift": 2})


def test_a_folder_for_inference_has_no_memory_to_show(tmp_path: Path) -> None:
    learner = small_learner("er")
    learner.observe(X, Y)
    learner.save(tmp_path / "small", inference_only=True)
    with pytest.raises(CheckpointError, match="inference only, so it holds no memory"):
        saved_memory(tmp_path / "small")


def test_a_torch_that_cannot_tell_about_the_processor_computes_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert resolve_precision("auto", "cpu") == "float32"
