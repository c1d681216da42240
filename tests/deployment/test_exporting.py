"""What is exported or saved for inference answers as the learner does."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from engram import CheckpointError, InputError, Learner, NotReadyError, Predictor
from engram.base.interfaces import Classifier
from engram.cli import main
from engram.testing import small_options
from tests.helpers import feed, small_learner, toy_images, toy_stream
from tests.streams.imagefiles import picture

X = toy_images([0, 1, 2, 3] * 3, 5)


def own_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(3))


LEARNERS: dict[str, Any] = {
    "softmax": lambda: small_learner("er"),
    "class means": lambda: small_learner("scr+ssd"),
    "averaged": lambda: small_learner("er", average=0.9),
    "own net, softmax": lambda: small_learner("er", net=own_net()),
    "own net, class means": lambda: small_learner("scr", net=own_net()),
    "mirrored, softmax": lambda: small_learner("er", classifier={"mirror": True}),
    "mirrored, class means": lambda: small_learner("scr", classifier={"mirror": True}),
    "head for more classes": lambda: small_learner("er", classes_total=7),
    "proxies": lambda: small_learner("pcr"),
    "from scratch": lambda: Learner("gdumb", **small_options("gdumb")),
}


@pytest.fixture(params=list(LEARNERS))
def taught(request: pytest.FixtureRequest) -> Learner:
    learner = LEARNERS[request.param]()
    for x, y in toy_stream(2, 6):
        learner.observe(x, [f"class {label}" for label in y])
    return learner


def test_onnx_gives_the_same_answers(taught: Learner, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    taught.export(tmp_path / "model.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"], "one file, weights included"
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    facts = json.loads(session.get_modelmeta().custom_metadata_map["engram"])
    assert facts == {"labels": taught.labels, "image_shape": [1, 16, 16], "fit": "crop"}
    for count in (1, len(X)):
        images = X[:count].astype(np.float32) / 255
        scores, shares = session.run(["scores", "probabilities"], {"images": images})
        assert np.abs(scores - taught.scores(X[:count]).numpy()).max() < 1e-4
        assert np.abs(shares - taught.predict_proba(X[:count])).max() < 1e-4
        known = dict(enumerate(facts["labels"]))
        assert [known.get(index) for index in scores.argmax(1).tolist()] == taught.predict(X[:count]).tolist()


def test_an_exported_program_gives_the_same_answers(taught: Learner, tmp_path: Path) -> None:
    taught.export(tmp_path / "model.pt2")
    facts = {"engram": ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=facts).module()
    assert json.loads(facts["engram"])["labels"] == taught.labels
    scores, shares = program(torch.from_numpy(X).float() / 255)
    assert torch.allclose(scores, torch.as_tensor(taught.scores(X)), atol=1e-4)
    assert np.abs(shares.numpy() - taught.predict_proba(X)).max() < 1e-4
    assert shares.sum(1) == pytest.approx(1)


def test_a_save_for_inference_is_small_and_answers_alike(taught: Learner, tmp_path: Path) -> None:
    taught.save(tmp_path / "whole")
    taught.save(tmp_path / "small", inference_only=True)
    own = own_net() if "net" in taught.custom_nets else None
    predictor = Predictor.load(tmp_path / "small", net=own)
    assert torch.equal(predictor.scores(X), taught.scores(X))
    assert predictor.predict(X).tolist() == taught.predict(X).tolist()
    assert np.array_equal(predictor.predict_proba(X), taught.predict_proba(X))
    assert predictor.labels == taught.labels
    assert predictor.predict(X[:0]).tolist() == []
    sizes = {
        name: sum(file.stat().st_size for file in (tmp_path / name).rglob("*.safetensors"))
        for name in ("whole", "small")
    }
    assert sizes["small"] < sizes["whole"]
    assert sizes["small"] < predictor.footprint()["net"] + 20_000, "nothing but the net, and the names of its weights"


def test_the_learner_goes_on_untouched_and_the_predictor_stays() -> None:
    learner = feed(small_learner("scr"), toy_stream(1, 3))
    predictor = learner.predictor()
    before = predictor.scores(X)
    feed(learner, toy_stream(2, 4))
    assert torch.equal(predictor.scores(X), before)
    assert not torch.equal(learner.scores(X)[:, :2], before)
    assert learner.model.net.training


def test_a_class_without_an_image_in_memory_is_never_the_answer() -> None:
    learner = feed(small_learner("scr", memory_size=2), toy_stream(3, 3))
    scores = learner.scores(X)
    assert scores.isinf().any(), "six classes share two slots"
    assert torch.equal(learner.predictor().scores(X), scores)


def test_each_kind_of_folder_says_how_it_is_loaded(tmp_path: Path) -> None:
    learner = feed(small_learner("er"), toy_stream(1, 2))
    learner.save(tmp_path / "whole")
    learner.save(tmp_path / "small", inference_only=True)
    with pytest.raises(CheckpointError, match=r"saved for inference only: load it with engram\.Predictor\.load"):
        Learner.load(tmp_path / "small")
    with pytest.raises(CheckpointError, match="nothing that was saved for inference only"):
        Predictor.load(tmp_path / "whole")
    with pytest.raises(InputError, match="built-in net: leave out net"):
        Predictor.load(tmp_path / "small", net=own_net())
    with pytest.raises(InputError, match=r"let it end in \.onnx or \.pt2"):
        learner.export(tmp_path / "model.tflite")
    with pytest.raises(NotReadyError, match="call observe first"):
        small_learner("er").export(tmp_path / "model.onnx")


class Guessing(Classifier):
    """A classifier that has no head."""


def test_a_classifier_without_a_head_says_so(tmp_path: Path) -> None:
    learner = feed(small_learner("er"), toy_stream(1, 2))
    learner.classifier = Guessing()
    with pytest.raises(InputError, match="answers of Guessing cannot be exported"):
        learner.export(tmp_path / "model.onnx")


def test_the_command_line_asks_a_save_for_inference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learner = small_learner("er")
    rng = np.random.default_rng(0)
    learner.observe(rng.random((4, 3, 16, 16), dtype=np.float32), ["cat", "dog"] * 2)
    learner.save(tmp_path / "small", inference_only=True)
    (tmp_path / "x.png").write_bytes(picture(0, 30, "PNG"))
    assert main(["predict", str(tmp_path / "small"), str(tmp_path / "x.png"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)["classes"][0]["label"]
    assert answer == learner.predict(tmp_path / "x.png")[0]
