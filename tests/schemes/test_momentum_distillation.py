"""MKD: its loss against loops over images and classes, and who teaches."""

import math

import pytest
import torch

from engram import InputError, Learner
from engram.base.batch import Batch
from engram.schemes import MomentumDistillation
from engram.testing import small_options
from tests.helpers import feed, toy_images, toy_stream


def softmax(logits: list[float], temperature: float = 1.0) -> list[float]:
    powers = [math.exp(value / temperature) for value in logits]
    return [power / sum(powers) for power in powers]


def soft_cross_entropy(taught: list[list[float]], own: list[list[float]], temperature: float) -> float:
    total = 0.0
    for row, other in zip(taught, own, strict=True):
        total -= sum(
            p * math.log(q) for p, q in zip(softmax(row, temperature), softmax(other, temperature), strict=True)
        )
    return temperature**2 * total / len(taught)


def test_the_loss_is_that_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = feed(Learner("mkd", **small_options("mkd")), toy_stream(2, 6))
    shift = 0.25
    monkeypatch.setattr("engram.schemes.momentum_distillation.augment_view", lambda x, *_: (x + shift).clamp(0, 1))
    stream, replay = (mine._batch(torch.tensor(toy_images(labels, 5)), labels) for labels in ([2, 3], [0, 1, 2]))
    found = mine.scheme.loss(stream, replay, mine._context())
    both = Batch.join(stream, replay)
    views = (both.x + shift).clamp(0, 1)
    with torch.no_grad():
        of_views, of_images = (mine.model.logits(x).tolist() for x in (views, both.x))
        with mine.averaged.evaluating():
            taught = mine.averaged.logits(views).tolist()
    plain = -sum(math.log(softmax(row)[y]) for row, y in zip(of_views, both.y.tolist(), strict=True)) / len(both)
    kept = [soft_cross_entropy(taught, rows, 4.0) for rows in (of_views, of_images)]
    assert float(found.detach()) == pytest.approx(plain + 5.5 * sum(kept) / 2, rel=1e-4)
    assert taught != of_views


def test_the_teacher_is_not_trained() -> None:
    mine = feed(Learner("mkd", **small_options("mkd")), toy_stream(2, 6))
    before = [parameter.clone() for parameter in mine.averaged.parameters()]
    stream = mine._batch(torch.tensor(toy_images([0, 1], 5)), [0, 1])
    mine.scheme.loss(stream, None, mine._context()).backward()
    assert all(parameter.grad is None for parameter in mine.averaged.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, mine.averaged.parameters(), strict=True))


def test_a_teacher_is_required() -> None:
    with pytest.raises(InputError, match=r"give average=0\.99"):
        Learner(scheme=MomentumDistillation())
    with pytest.raises(InputError, match=r"give average=0\.99"):
        Learner("mkd", average=None)
