"""A learner above a cut: the front stays as it is, the memory holds latents, and all else works as on images."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from engram import InputError, Learner, Predictor
from engram.augmentations import RandomView
from engram.classifiers import NearestClassMean
from engram.latents import FrozenFront
from engram.memory import Balanced
from engram.persistence.checkpoint import CheckpointError
from engram.persistence.restore import saved_memory
from engram.schemes import SupervisedContrastiveReplay
from engram.summarize import gradient_target
from engram.testing import CHECKS, feed, fingerprint, toy_images, toy_stream
from tests.latents.nets import Tokens, bits, latent_learner, pretrained

X = toy_images([0, 1, 2, 3] * 3, 5)
FREEZES = ["all", "until:2", "until:4"]


@pytest.mark.parametrize(("method", "freeze"), [("er-ema", "until:2"), ("scr+ssd", "all"), ("der++", "until:2")])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(method: str, freeze: str, check: Any) -> None:
    check(lambda **changes: latent_learner(method, freeze, **changes | {"codec": "latent8"}))


@pytest.mark.parametrize("freeze", ["all", "until:4"])
def test_the_frozen_part_is_untouched_after_a_thousand_batches(freeze: str) -> None:
    given = pretrained()
    whole = bits(given)
    learner = latent_learner("er", freeze, net=given, average=0.9)
    feed(learner, toy_stream(1, 1))
    assert learner.front is not None
    before, above = bits(learner.front.net), bits(learner.model.net)
    assert before in whole, "weights and batch-norm statistics as given"
    for index in range(999):
        labels = [index % 4, (index + 1) % 4]
        learner.observe(toy_images(labels, index), labels)
    assert bits(learner.front.net) == before
    assert bits(learner.model.net) != above
    assert bits(given) == whole, "and the caller's own module too"


@pytest.mark.parametrize("freeze", FREEZES)
@pytest.mark.parametrize(
    "method", ["er", "er-ace", "pcr", "mir", "gss", "aser", "ewc++", "lwf", "a-gem", "dvc", "der++", "rar"]
)
def test_every_kind_of_method_learns_on_latents(method: str, freeze: str) -> None:
    learner = feed(latent_learner(method, freeze), toy_stream(2, 4))
    assert set(learner.predict(X)) <= {0, 1, 2, 3}
    assert learner.iteration == 8


def test_each_image_of_the_stream_goes_through_the_front_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    plain = FrozenFront.latents
    monkeypatch.setattr(FrozenFront, "latents", lambda self, x: counted.append(len(x)) or plain(self, x))
    learner = feed(latent_learner("er-ema", repeats=3), toy_stream(2, 5))
    assert counted == [4] * 10
    learner.rehearse(2)
    assert counted == [4] * 10
    learner.predict(X)
    assert counted[10:] == [len(X)]


def test_the_memory_holds_what_the_front_gives() -> None:
    learner = latent_learner("er", codec="float32", memory_size=40)
    seen = [(x, y) for x, y in toy_stream(1, 6)]
    feed(learner, seen)
    images = torch.cat([torch.from_numpy(x) for x, _ in seen]).float() / 255
    with torch.no_grad():
        expected = pretrained().eval()[:3](images)  # type: ignore[index]
    batch = learner.memory.read(learner.memory.filled())
    assert torch.allclose(batch.x, expected, atol=1e-6)
    assert batch.y.tolist() == [label for _, labels in seen for label in labels]


def test_training_above_the_cut_is_training_a_net_whose_front_is_frozen() -> None:
    """The slow version keeps images, and runs all of them through the whole net at each step."""
    net = pretrained()

    class Whole(nn.Module):
        """The same net, with its first layers in eval mode and without gradients."""

        def __init__(self) -> None:
            super().__init__()
            self.front, self.above = net[:3].eval().requires_grad_(False), net[3:]  # type: ignore[index]

        def train(self, mode: bool = True) -> nn.Module:
            super().train(mode)
            self.front.eval()
            return self

        def forward(self, x: Tensor) -> Tensor:
            return self.above(self.front(x))  # type: ignore[no-any-return]

    slow = feed(latent_learner("er", None, net=Whole(), codec="float32"), toy_stream(2, 6))
    fast = feed(latent_learner("er", "until:2", codec="float32"), toy_stream(2, 6))
    assert torch.allclose(fast.scores(X), slow.scores(X), atol=1e-4)


def test_a_learner_goes_on_exactly_also_with_another_module_of_the_same_shape(tmp_path: Path) -> None:
    batches = list(toy_stream(2, 8))
    for method, codec in (("scr+ssd", "latent8"), ("er-ema", "latent16")):
        whole = feed(latent_learner(method, codec=codec), batches)
        feed(latent_learner(method, codec=codec), batches[:9]).save(tmp_path / method)
        other = pretrained()
        for parameter in other.parameters():
            parameter.data.zero_()
        loaded = Learner.load(tmp_path / method, net=other)
        assert (loaded.freeze, loaded.options["codec"]) == ("until:2", codec)
        assert fingerprint(feed(loaded, batches[9:])) == fingerprint(whole)
    with pytest.raises(CheckpointError, match="does not fit"):
        Learner.load(tmp_path / "er-ema", net=nn.Sequential(*pretrained()[:4], nn.ReLU(), nn.ReLU()))  # type: ignore[index]


@pytest.mark.parametrize("method", ["er-ema", "scr"])
@pytest.mark.parametrize("freeze", FREEZES)
def test_what_is_exported_or_saved_for_inference_has_both_parts(method: str, freeze: str, tmp_path: Path) -> None:
    learner = feed(latent_learner(method, freeze), toy_stream(2, 5))
    learner.save(tmp_path / "small", inference_only=True)
    predictor = Predictor.load(tmp_path / "small", net=pretrained())
    assert torch.equal(predictor.scores(X), learner.scores(X))
    predictor.save(tmp_path / "again")
    assert torch.equal(Predictor.load(tmp_path / "again", net=pretrained()).scores(X), learner.scores(X))
    learner.export(tmp_path / "model.pt2")
    scores, _ = torch.export.load(tmp_path / "model.pt2").module()(torch.from_numpy(X).float() / 255)
    assert torch.allclose(scores, torch.as_tensor(learner.scores(X)), atol=1e-4)
    onnxruntime = pytest.importorskip("onnxruntime")
    learner.export(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    scores, _ = session.run(["scores", "probabilities"], {"images": X.astype(np.float32) / 255})
    assert np.abs(scores - learner.scores(X).numpy()).max() < 1e-4
    assert json.loads(session.get_modelmeta().custom_metadata_map["engram"])["image_shape"] == [1, 16, 16]


def test_summaries_are_matched_by_the_part_above_the_cut() -> None:
    learner = latent_learner("scr+ssd", "until:2")
    x, y = next(iter(toy_stream(1, 1)))
    learner.observe(x, y)
    theta, above = learner.summarizer.theta, pretrained()[3]  # type: ignore[union-attr,index]
    (matched,) = theta.matched_weights
    assert matched.shape == above.weight.shape
    assert (matched - above.weight).abs().max() < 0.1, "it starts as given, and has learned from one batch"
    assert learner.memory.shape == (8, 8, 8)
    feed(learner, toy_stream(2, 8))
    assert learner.rounds > 0
    assert bool(learner.memory.summary.any())
    assert not any(module.training for module in theta.backbone.modules()), "batch norms mix no latents"


def test_features_alone_are_matched_by_the_gradients_of_the_head() -> None:
    learner = feed(latent_learner("er+ssd", "all"), toy_stream(2, 8))
    theta = learner.summarizer.theta  # type: ignore[union-attr]
    assert learner.rounds > 0
    latents = torch.rand(5, *learner.memory.shape)
    target = gradient_target(theta, latents, 1)
    shares = theta(latents).softmax(1)
    shares[:, 1] -= 1
    assert torch.allclose(target.gradients[0], shares.T @ latents.flatten(1) / 5, atol=1e-6)


@pytest.mark.parametrize("matching", ["gradients", "features"])
def test_summaries_of_latents_come_closer_to_the_latents_of_their_class(matching: str) -> None:
    summarize = {"queue": 8, "ready": 4, "interval": 1, "matching": matching, "learning_rate": 0.05}
    learner = latent_learner("er+ssd", "all", codec="float32", memory_size=2, summarize=summarize)
    feed(learner, toy_stream(1, 3))
    claimed = learner.memory.claimed_by(0)
    before = learner.memory.read(claimed).x
    for index in range(20):
        learner.observe(toy_images([0, 1, 0, 1], 50 + index), [0, 1, 0, 1])
    with torch.no_grad():
        real = pretrained().eval()(torch.from_numpy(toy_images([0] * 32, 999)).float() / 255).mean(0)
    after = learner.memory.read(learner.memory.claimed_by(0)).x
    assert float((after.mean(0) - real).norm()) < float((before.mean(0) - real).norm())


def test_tokens_and_a_theta_of_the_callers_own_work() -> None:
    learner = feed(latent_learner("scr", "until:first", net=Tokens()), toy_stream(2, 5))
    assert learner.memory.shape == (12, 16, 1)
    theta = nn.Sequential(nn.Conv2d(8, 4, 3), nn.ReLU())
    own = feed(latent_learner("er+ssd", "until:2", theta=theta), toy_stream(2, 8))
    assert own.summarizer.theta.matched_weights[0].shape == (4, 8, 3, 3)  # type: ignore[union-attr]
    assert own.rounds > 0
    with pytest.raises(InputError, match="depth 3 is too large for images of 4 px"):
        feed(latent_learner("er+ssd", "until:4", theta={"width": 8}), toy_stream(1, 1))


def test_bf16_and_a_limit_of_everything_work_above_a_cut() -> None:
    options = {"precision": "bf16", "memory_size": None, "total_bytes": 30_000}
    learner = feed(latent_learner("er-ema", "until:4", **options), toy_stream(2, 10))
    held = learner.footprint()
    assert held["total"] - held["net"] <= 30_000
    assert learner.memory.size > 10
    assert learner.memory.read(learner.memory.filled()).x.dtype == torch.float32


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"codec": "webp(50)"}, r"webp\(50\) keeps pixels.*latent8, latent16 or float32"),
        ({"codec": "uint8"}, "uint8 keeps pixels"),
        ({"net": {"width": 8}}, "give net=module"),
        ({"method": "ocm"}, "MutualInformationMaximization changes images"),
        ({"method": "scr", "scheme": {"augment": {"flip": 0.5}}}, r"scheme\.augment changes pixels"),
        ({"scheme": SupervisedContrastiveReplay(augment=RandomView().view.__class__(gray=1.0))}, "changes pixels"),
        ({"method": "er+ssd", "summarize": {"augment": {"shift": 0.1}}}, r"summarize\.augment changes pixels"),
        ({"codec": 5}, "codec is 5"),
        ({"method": "er-ema", "augment": {"view": {"flip": 0.5}}}, "augment changes pixels"),
        ({"augment": RandomView()}, "augment changes pixels"),
    ],
)
def test_what_cannot_work_on_latents_is_refused_at_once(options: dict[str, Any], reason: str) -> None:
    asked = {"net": pretrained(), "freeze": "all", "method": "er"} | options
    if "scheme" in asked and not isinstance(asked["scheme"], dict):
        asked["method"] = None
    with pytest.raises(InputError, match=reason):
        Learner(**asked)


def test_nothing_is_augmented_above_a_cut(tmp_path: Path) -> None:
    """er-ema without its views is pcr in one pass with the same policy, average and answers, also once loaded."""
    learner = feed(latent_learner("er-ema", codec="float32"), toy_stream(2, 5))
    assert learner.augmentation is None
    scheme = {"replay": 5, "views": "one", "passes": "joint"}
    parts: dict[str, Any] = {"scheme": scheme, "policy": Balanced(), "classifier": NearestClassMean()}
    plain = latent_learner("pcr", codec="float32", average=0.99, repeats=learner.options["repeats"], **parts)
    assert torch.equal(learner.scores(X), feed(plain, toy_stream(2, 5)).scores(X))
    learner.save(tmp_path / "l")
    assert Learner.load(tmp_path / "l", net=pretrained()).augmentation is None


def test_views_that_only_mirror_maps_are_allowed() -> None:
    mirror = {"crop": "none", "flip": 0.5, "jitter": 0.0, "gray": 0.0}
    learner = feed(latent_learner("scr", "until:2", scheme={"replay": 5, "augment": mirror}), toy_stream(2, 4))
    assert learner.settings["scheme"]["augment"].flip == 0.5
    plain = feed(latent_learner("scr", "until:2"), toy_stream(2, 4))
    assert plain.settings["scheme"]["augment"].flip == 0
    assert not torch.equal(learner.scores(X), plain.scores(X))


def test_latents_are_neither_exported_as_images_nor_adopted(tmp_path: Path) -> None:
    learner = feed(latent_learner("er"), toy_stream(1, 3))
    with pytest.raises(InputError, match="holds latents of a frozen net, no images"):
        learner.export_memory()
    exported = feed(latent_learner("er", None), toy_stream(1, 3)).export_memory()
    with pytest.raises(InputError, match="keeps latents, and an exported memory holds images: give them to observe"):
        latent_learner("er").adopt(exported)
    learner.save(tmp_path / "l")
    memory, labels = saved_memory(tmp_path / "l")
    assert memory.latents
    assert memory.shape == (8, 8, 8)
    assert (memory.size, labels) == (learner.memory.size, learner.labels)
