"""PCR: the loss against a loop over images, and what a step moves."""

import math

import pytest
import torch

from engram import Learner
from engram.base.heads import CosineHead
from engram.schemes import proxy_contrastive_loss
from engram.testing import small_options
from tests.helpers import feed, toy_images, toy_stream


def test_the_loss_is_the_sum_over_the_proxies_of_the_images_in_the_step() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(5, 4, generator=generator, dtype=torch.float64).requires_grad_()
    proxies = torch.randn(6, 4, generator=generator, dtype=torch.float64).requires_grad_()
    labels, temperature = [2, 0, 2, 4, 2], 0.09
    head = CosineHead(4, 6, temperature)
    head.weight = torch.nn.Parameter(proxies.detach().clone())
    found = proxy_contrastive_loss(head(features), torch.tensor(labels))
    expected = 0.0
    for image, label in zip(features.tolist(), labels, strict=True):

        def similarity(c: int, image: list[float] = image) -> float:
            proxy = proxies[c].tolist()
            dot = sum(a * b for a, b in zip(image, proxy, strict=True))
            return math.exp(dot / math.hypot(*image) / math.hypot(*proxy) / temperature)

        expected -= math.log(similarity(label) / sum(similarity(other) for other in labels)) / 5
    assert float(found.detach()) == pytest.approx(expected)
    found.backward()
    assert head.weight.grad is not None
    assert not head.weight.grad[[1, 3, 5]].any(), "classes that the step does not show stay where they are"


def test_nothing_is_learned_before_there_is_something_to_replay() -> None:
    mine = Learner("pcr", **small_options("pcr"))
    mine.observe(toy_images([0, 1], 0), [0, 1])
    assert mine.model.version == 0


def test_stream_and_replay_are_seen_in_two_views_each() -> None:
    mine = feed(Learner("pcr", **small_options("pcr")), toy_stream(2, 4))
    sizes: list[int] = []
    mine.model.net.backbone.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    stream, replay = (mine._batch(torch.tensor(toy_images(labels, 3)), labels) for labels in ([2, 3], [0, 1, 2]))
    mine.scheme.loss(stream, replay, mine._context())
    assert sizes == [4, 6]


def test_images_that_were_augmented_before_are_seen_once_in_one_pass() -> None:
    mine = feed(
        Learner("pcr", **small_options("pcr") | {"scheme": {"views": "one", "passes": "joint"}}), toy_stream(2, 4)
    )
    passes: list[torch.Tensor] = []
    mine.model.net.backbone.register_forward_pre_hook(lambda _, inputs: passes.append(inputs[0]))
    stream, replay = (mine._batch(torch.tensor(toy_images(labels, 3)), labels) for labels in ([2, 3], [0, 1, 2]))
    found = mine.scheme.loss(stream, replay, mine._context())
    (shown,) = passes
    assert torch.equal(shown, torch.cat([stream.x, replay.x]))
    expected = proxy_contrastive_loss(mine.model.logits(shown), torch.cat([stream.y, replay.y]))
    assert float(found.detach()) == pytest.approx(float(expected.detach()))
