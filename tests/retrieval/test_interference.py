"""MIR and MGI against brute force: copy the net, take the step, compare."""

import copy

import pytest
import torch
from torch.nn import functional as F

from engram import Learner
from engram.base.gradients import virtual_step
from engram.retrieval import MaximalGradientInterference, MaximallyInterfered
from tests.helpers import feed, fingerprint, toy_images, toy_stream


@pytest.fixture
def filled() -> Learner:
    mine = Learner("er", memory_size=20, net={"width": 8}, boundary_gap=4)
    return feed(mine, toy_stream(2, 8))


def stepped_copy(mine: Learner, x: torch.Tensor, y: torch.Tensor) -> torch.nn.Module:
    net = copy.deepcopy(mine.model.net).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    F.cross_entropy(net(x, "logits")[1], y).backward()
    optimizer.step()
    return net


def gradient_size(net: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    features, logits = net(x, "logits")
    sizes = []
    for feature, row, label in zip(features, logits, y, strict=True):
        target = torch.zeros_like(row)
        target[label] = 1
        sizes.append((row.softmax(0) - target).abs().sum() * feature.abs().sum())
    return torch.stack(sizes)


@pytest.mark.parametrize("rule", [MaximallyInterfered, MaximalGradientInterference])
def test_ranking_equals_brute_force(filled: Learner, rule: type) -> None:
    stream = filled._batch(torch.tensor(toy_images([2, 3, 2], 70)), [2, 3, 2])
    ctx = filled._context()
    filled.model.net.train()
    slots = torch.randperm(20, generator=copy.deepcopy(filled.rng)["replay"])[:12]
    batch = filled.memory.read(slots)
    after, before = stepped_copy(filled, stream.x, stream.y), copy.deepcopy(filled.model.net).train()
    with torch.no_grad():
        if rule is MaximallyInterfered:
            losses = [F.cross_entropy(net(batch.x, "logits")[1], batch.y, reduction="none") for net in (after, before)]
        else:
            losses = [gradient_size(net, batch.x, batch.y) for net in (after, before)]
    expected = slots[(losses[0] - losses[1]).topk(5).indices]
    chosen = rule(candidates=12).select(stream, 5, ctx)
    assert set(chosen.tolist()) == set(expected.tolist())


def test_a_virtual_step_is_a_step_and_changes_nothing(filled: Learner) -> None:
    stream = filled._batch(torch.tensor(toy_images([2, 3], 70)), [2, 3])
    before = fingerprint(filled)
    params = virtual_step(stream, filled._context())
    assert fingerprint(filled) == before
    for name, parameter in stepped_copy(filled, stream.x, stream.y).named_parameters():
        torch.testing.assert_close(params[name], parameter.detach(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rule", [MaximallyInterfered, MaximalGradientInterference])
def test_selecting_changes_nothing_but_the_draws(filled: Learner, rule: type) -> None:
    stream = filled._batch(torch.tensor(toy_images([2, 3], 70)), [2, 3])
    buffers = {name: value.clone() for name, value in filled.model.net.named_buffers()}
    rule().select(stream, 5, filled._context())
    assert all(torch.equal(value, buffers[name]) for name, value in filled.model.net.named_buffers())


@pytest.mark.parametrize("rule", [MaximallyInterfered, MaximalGradientInterference])
def test_few_candidates_are_all_taken(filled: Learner, rule: type) -> None:
    stream = filled._batch(torch.tensor(toy_images([2], 70)), [2])
    assert sorted(rule().select(stream, 50, filled._context()).tolist()) == list(range(20))
    assert len(rule(candidates=3).select(stream, 5, filled._context())) == 5


def test_schemes_without_logits_rank_by_nearest_class_mean_scores() -> None:
    mine = feed(Learner("scr", memory_size=20, net={"width": 8}), toy_stream(2, 8))
    ctx = mine._context()
    x = torch.tensor(toy_images([0, 1, 2, 3], 5)) / 255
    mine.model.net.eval()
    scores = mine.scheme.class_scores(x, ctx)
    memory = mine.memory.read(mine.memory.filled())
    with torch.no_grad():
        projections = mine.scheme.project(memory.x, mine.model)
        for label in range(4):
            mean = F.normalize(projections[memory.y == label].mean(0), dim=0)
            expected = mine.scheme.project(x, mine.model) @ mean / 0.07
            torch.testing.assert_close(scores[:, label].detach(), expected, rtol=1e-3, atol=1e-3)
