"""Supervised contrastive replay: its loss against two independent versions, and how it trains."""

import pytest
import torch
from pytorch_metric_learning.losses import SupConLoss
from torch import Tensor
from torch.nn import functional as F

from engram.augmentations.view import augment_view
from engram.base.batch import Batch
from engram.schemes import SupervisedContrastiveReplay, supervised_contrastive_loss
from tests.helpers import feed, small_learner, toy_images, toy_stream


def obvious_loss(z: Tensor, labels: Tensor, temperature: float) -> Tensor:
    total = 0.0
    for i in range(len(z)):
        others = [a for a in range(len(z)) if a != i]
        denominator = sum(torch.exp(z[i] @ z[a] / temperature) for a in others)
        positives = [p for p in others if labels[p] == labels[i]]
        total = total - sum(torch.log(torch.exp(z[i] @ z[p] / temperature) / denominator) for p in positives) / len(
            positives
        )
    return total / len(z)


@pytest.fixture
def views() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([0, 1, 1, 2, 0, 3])
    raw = torch.randn(12, 5, generator=generator, dtype=torch.float64)
    return F.normalize(raw, dim=1).requires_grad_(), labels.repeat(2)


def test_loss_equals_the_formula_in_value_and_gradient(views: tuple[Tensor, Tensor]) -> None:
    z, labels = views
    value, expected = supervised_contrastive_loss(z, labels, 0.07), obvious_loss(z, labels, 0.07)
    assert float(value.detach()) == pytest.approx(float(expected.detach()), rel=1e-9)
    (found,), (wanted,) = torch.autograd.grad(value, z), torch.autograd.grad(expected, z)
    torch.testing.assert_close(found, wanted)


def test_loss_equals_pytorch_metric_learning(views: tuple[Tensor, Tensor]) -> None:
    z, labels = views
    expected = SupConLoss(temperature=0.07)(z, labels)
    assert float(supervised_contrastive_loss(z, labels, 0.07).detach()) == pytest.approx(float(expected.detach()))


def test_views_go_through_the_net_separately_and_the_first_is_raw() -> None:
    learner = feed(small_learner("scr"), toy_stream(1, 3))
    passes: list[Tensor] = []
    learner.model.net.backbone.register_forward_pre_hook(lambda _, inputs: passes.append(inputs[0].clone()))
    learner.observe(toy_images([0, 1], 9), [0, 1])
    raw, augmented = passes
    assert raw.shape == augmented.shape == (10, 1, 16, 16)
    assert torch.equal(raw[-2:], torch.tensor(toy_images([0, 1], 9)) / 255)
    assert not torch.equal(raw, augmented)


def test_no_step_while_the_memory_is_empty() -> None:
    learner = small_learner("scr")
    x, y = next(toy_stream(1, 1))
    learner.observe(x, y)
    assert learner.model.version == 0
    learner.observe(x, y)
    assert learner.model.version == 1


def test_repeats_train_so_often_and_redraw_replay_and_augmentation(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = feed(small_learner("scr+ssd", memory_size=16, repeats=5), toy_stream(1, 10))
    drawn: list[tuple[Tensor, Tensor]] = []
    plain = SupervisedContrastiveReplay.loss

    def watched(self: SupervisedContrastiveReplay, stream: Batch, replay: Batch, ctx: object) -> Tensor | None:
        drawn.append((stream.x, replay.x))
        return plain(self, stream, replay, ctx)

    monkeypatch.setattr(SupervisedContrastiveReplay, "loss", watched)
    views: list[Tensor] = []
    monkeypatch.setattr(
        "engram.schemes.contrastive.augment_view", lambda *rest: views.append(augment_view(*rest)) or views[-1]
    )
    before, rounds, age = learner.model.version, learner.rounds, learner.summarizer.age
    learner.observe(toy_images([0, 1], 99), [0, 1])
    assert learner.model.version == before + 5
    assert len(drawn) == 5
    assert all(torch.equal(stream, drawn[0][0]) for stream, _ in drawn)
    assert len({replay.numpy().tobytes() for _, replay in drawn}) > 1
    assert len({view[-2:].numpy().tobytes() for view in views}) == 5
    assert learner.summarizer.age == age + 1
    assert learner.rounds <= rounds + 1
