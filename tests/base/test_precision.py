"""bf16: close to float32, float32 where it is kept, and as exact to resume."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engram import Learner, RunConfig, SummaryMemory
from engram.base import precision as module
from engram.base.precision import computing_in, has_native_bf16, resolve_precision
from engram.experiment.config import config_text, differences
from engram.methods import METHODS
from engram.persistence.state import flatten
from engram.schemes import Untrained
from engram.summarize.matching.gradients import gradient_target, gradient_terms
from engram.testing import small_options
from tests.helpers import feed, fingerprint, small_learner, toy_images, toy_stream


def losses(method: str, precision: Any) -> list[float]:
    """The losses of one step, after the same float32 training. Labels are wrong, as losses near zero are noise."""
    learner = Learner(method, **small_options(method) | {"repeats": 1, "net": {"width": 16}})
    feed(learner, toy_stream(2, 6))
    learner.model.net.precision = precision
    found, plain = [], learner.scheme.loss

    def note(*arguments: Any) -> torch.Tensor | None:
        loss = plain(*arguments)
        if loss is not None:
            assert loss.dtype == torch.float32
            found.append(float(loss.detach()))
        return loss

    learner.scheme.loss = note
    learner.observe(toy_images([2, 3, 2, 3], 50), [3, 2, 3, 2])
    return found


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.scheme is not Untrained])
def test_the_loss_of_every_scheme_is_within_a_percent(method: str) -> None:
    full, half = losses(method, "float32"), losses(method, "bf16")
    assert half == pytest.approx(full, rel=0.01)
    assert half != full


def test_a_net_trained_for_its_answers_computes_in_bf16_too() -> None:
    def scores(precision: Any) -> np.ndarray[Any, Any]:
        options = small_options("gdumb") | {"net": {"width": 16}, "classifier": {"epochs": 2}, "precision": precision}
        return feed(Learner("gdumb", **options), toy_stream(2, 6)).predict_proba(toy_images([0, 1, 2, 3], 50))

    full, half = scores("float32"), scores("bf16")
    assert half == pytest.approx(full, abs=0.05)
    assert not np.array_equal(half, full)


def test_matching_in_bf16_is_close_and_its_terms_are_float32() -> None:
    learner = feed(small_learner(theta={"width": 32}), toy_stream(2, 4))
    theta = learner.summarizer.theta
    real, synthetic = (torch.rand(n, 1, 16, 16, generator=torch.Generator().manual_seed(n)) for n in (12, 2))
    anchors = theta.features(torch.rand(3, 1, 16, 16)).detach()

    def matched(precision: Any) -> tuple[list[float], torch.Tensor]:
        images = synthetic.clone().requires_grad_()
        with computing_in(precision, torch.device("cpu")):
            target = gradient_target(theta, real, 1)
            terms = gradient_terms(theta, images, 1, target, anchors, 1.0)
            (gradient,) = torch.autograd.grad(sum(terms), images)
        assert {term.dtype for term in terms} | {gradient.dtype, target.features.dtype} == {torch.float32}
        return [float(term.detach()) for term in terms], gradient

    (full, gradient), (half, rough) = matched("float32"), matched("bf16")
    assert half == pytest.approx(full, rel=0.05)
    assert float(torch.cosine_similarity(gradient.flatten(), rough.flatten(), dim=0)) > 0.98


@pytest.mark.parametrize("method", ["scr+ssd", "ocm", "ewc++"])
def test_everything_kept_is_float32_and_resuming_is_exact(method: str, tmp_path: Path) -> None:
    batches = list(toy_stream(2, 8))

    def make() -> Learner:
        return Learner(method, **small_options(method), precision="bf16", average=0.9)

    whole = feed(make(), batches)
    tensors, _ = flatten(whole.state())
    assert torch.bfloat16 not in {tensor.dtype for tensor in tensors.values()}
    feed(make(), batches[:10]).save(tmp_path / "saved")
    loaded = Learner.load(tmp_path / "saved")
    assert loaded.options["precision"] == loaded.model.net.precision == "bf16"
    assert fingerprint(feed(loaded, batches[10:])) == fingerprint(whole)
    plain = feed(Learner(method, **small_options(method), average=0.9), batches)
    assert fingerprint(plain) != fingerprint(whole)


def test_weights_that_are_trained_inside_are_cast_anew() -> None:
    """A cast that was kept would let the second step of theta see the weights from before the first."""
    layer = torch.nn.Linear(4, 1, bias=False)
    x = torch.ones(1, 4)
    with computing_in("bf16", torch.device("cpu")):
        layer(x)
        with torch.no_grad():
            layer.weight.fill_(2.0)
        assert float(layer(x).detach()) == 8


def test_a_memory_by_itself_computes_in_the_precision_asked_for() -> None:
    def summarized(precision: Any) -> torch.Tensor:
        settings: Any = {"theta": {"width": 16}, "summarize": {"queue": 8, "ready": 4, "interval": 2}}
        memory = SummaryMemory(memory_size=4, precision=precision, **settings)
        for x, y in toy_stream(1, 8):
            memory.update(x, y)
        assert memory.rounds
        return memory.memory.read(memory.memory.filled()).x

    full, half = summarized("float32"), summarized("bf16")
    assert not torch.equal(full, half)
    torch.testing.assert_close(full, half, atol=0.02, rtol=0)


def test_auto_asks_the_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    for flags, expected in (({"avx512_bf16": True}, "bf16"), ({"avx2": True, "avx512_bf16": False}, "float32")):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda flags=flags: flags)
        assert resolve_precision("auto", "cpu") == expected
        assert Learner(precision="auto").options["precision"] == expected
        assert RunConfig("er", precision="auto").options["precision"] == expected
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: not including_emulation)
    assert resolve_precision("auto", "cuda:0") == "bf16"
    assert not has_native_bf16(torch.device("mps"))
    assert resolve_precision("float32", "cpu") == "float32"


def test_on_a_gpu_the_gpu_casts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(module.torch, "autocast", lambda kind, dtype, cache_enabled: asked.append((kind, dtype)))
    computing_in("bf16", torch.device("cuda:1"))
    computing_in("float32", torch.device("cuda:1"))
    assert asked == [("cuda", torch.bfloat16)]


def test_precision_is_part_of_what_a_run_is() -> None:
    full, half = (RunConfig("er", dataset="digits", precision=precision) for precision in ("float32", "bf16"))
    assert full == RunConfig("er", dataset="digits")
    assert full.identity() != half.identity()
    assert differences(config_text(full), half) == ["precision is float32, not bf16"]
