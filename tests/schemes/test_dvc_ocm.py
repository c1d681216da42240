"""DVC's and OCM's losses against loops, and the parts they are made of."""

import copy
import math

import pytest
import torch

from engram import Learner
from engram.base.initialization import materialize
from engram.schemes import (
    dual_view_loss,
    memory_information_loss,
    sixteen_labels,
    sixteen_transforms,
    stream_information_loss,
)
from engram.schemes.dvc import JointHead
from tests.helpers import feed, toy_images, toy_stream


def test_dual_view_loss_has_three_terms_as_stated() -> None:
    """Two images, two classes, probabilities chosen by hand."""
    p1, p2 = [[0.8, 0.2], [0.4, 0.6]], [[0.5, 0.5], [0.2, 0.8]]
    q = [[0.6, 0.4], [0.3, 0.7]]
    first, second, joint = (torch.tensor(p, dtype=torch.float64).log() for p in (p1, p2, q))
    cross_entropy = -(math.log(0.8) + math.log(0.6) + math.log(0.5) + math.log(0.8)) / 4
    balance = 0.0
    for mean in ((0.6, 0.4), (0.35, 0.65), (0.45, 0.55)):
        balance += sum(m * math.log(m) for m in mean)
    distance = (0.2 + 0.2 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1) / 8
    value = dual_view_loss(first, second, joint, torch.tensor([0, 1]))
    assert float(value) == pytest.approx(cross_entropy + balance / 3 + 4 * distance)


def test_joint_head_keeps_its_answers_when_it_grows() -> None:
    generator = torch.Generator().manual_seed(0)
    head = materialize(lambda: JointHead(16), generator, torch.device("cpu"))
    head.grow(3, generator)
    first, second = torch.randn(2, 4, 3)
    before = head(torch.cat([first, second], 1)).detach()
    head.grow(5, generator)
    more = torch.randn(2, 4, 2)
    wider = torch.cat([first, more[0], second, more[1]], 1)
    assert head(wider).shape == (4, 5)
    torch.testing.assert_close(head(wider)[:, :3].detach(), before)


def test_sixteen_transforms_are_distinct_and_the_first_is_the_image() -> None:
    images = torch.tensor(toy_images([0, 1], 0)) / 255
    transformed = sixteen_transforms(images)
    assert transformed.shape == (32, 1, 16, 16)
    assert torch.equal(transformed[:2], images)
    assert len({image.numpy().tobytes() for image in transformed}) == 32
    left_turned_right_kept = transformed[24]
    assert torch.equal(left_turned_right_kept[:, :, :8], images[0, :, :, :8].flip(1, 2))
    assert torch.equal(left_turned_right_kept[:, :, 8:], images[0, :, :, 8:])
    assert torch.equal(transformed[2], images[0].rot90(1, (1, 2)))
    halves = images[0, :, :, :8], images[0, :, :, 8:]
    turned = [half.flip(1, 2) for half in halves]
    assert torch.equal(transformed[8], torch.cat([halves[0], turned[1]], 2))
    assert torch.equal(transformed[16], torch.cat(turned, 2))


def test_each_transform_is_a_label_space_of_its_own() -> None:
    labels = sixteen_labels(torch.tensor([0, 3, 0]))
    blocks = labels.view(16, 3)
    assert (blocks[:, 0] == blocks[:, 2]).all()
    assert (blocks[:, 0] != blocks[:, 1]).all()
    assert len(set(labels.tolist())) == 32


def obvious_pair_loss(similarity: torch.Tensor, i: int, j: int, *, keep_self: bool) -> float:
    weights = [math.exp(float(value) / 0.07) for value in similarity[i]]
    if not keep_self:
        weights[i] = 0.0
    return -math.log(weights[j] / sum(weights) + 1e-8)


@pytest.fixture
def similarity() -> torch.Tensor:
    return torch.rand(8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_stream_term_equals_the_loops(similarity: torch.Tensor) -> None:
    """As released: the image itself has no weight in the sum, but counts in the mean over its label."""
    labels = torch.tensor([0, 1, 0, 2] * 2)
    twins = sum(obvious_pair_loss(similarity, i, (i + 4) % 8, keep_self=False) for i in range(8)) / 8
    same = 0.0
    for i in range(8):
        positives = [j for j in range(8) if labels[j] == labels[i]]
        same += sum(obvious_pair_loss(similarity, i, j, keep_self=False) for j in positives) / len(positives) / 8
    assert float(stream_information_loss(similarity, labels)) == pytest.approx(twins + 2 * same)


def test_a_balanced_stream_term_has_two_thirds_of_the_gradient_it_would_have_without_the_image_itself() -> None:
    """With one image of a label and its second view, the mean over the label is (twin + constant) / 2."""
    similarity = torch.rand(6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 2] * 2)
    (found,) = torch.autograd.grad(stream_information_loss(similarity, labels), similarity)
    masked = (similarity / 0.07).masked_fill(torch.eye(6, dtype=torch.bool), -torch.inf)
    twins = -(masked.softmax(1)[torch.arange(6), torch.arange(6).roll(3)] + 1e-8).log().mean()
    (of_twins,) = torch.autograd.grad(twins, similarity)
    torch.testing.assert_close(found, 2 * of_twins)


def test_memory_term_equals_the_loops_and_keeps_self(similarity: torch.Tensor) -> None:
    labels = torch.tensor([0, 1, 0, 2] * 2)
    expected = 0.0
    for i in range(8):
        positives = [j for j in range(8) if labels[j] == labels[i]]
        expected += sum(obvious_pair_loss(similarity, i, j, keep_self=True) for j in positives) / len(positives) / 8
    assert float(memory_information_loss(similarity, labels, labels)) == pytest.approx(expected)


def test_ocms_loss_is_the_sum_of_its_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views are mirrored or turned instead of augmented, so that every term can be written out: stream and memory
    views through the net in one pass, a slice of the features drawn for each, labels of the replayed images alone. One
    pass over one draw serves labels and distillation; the previous net sees the draw after it."""
    draws = []

    def injected(images: torch.Tensor, settings, generator) -> torch.Tensor:
        draws.append(len(images))
        return images.flip(2) if len(draws) == 4 else images.flip(3)

    monkeypatch.setattr("engram.schemes.ocm.augment_view", injected)
    mine = feed(Learner("ocm", memory_size=8, net={"width": 20}, boundary_gap=3), toy_stream(1, 2))
    mine.boundary()
    with torch.no_grad():
        for parameter in mine.model.parameters():
            parameter += 0.01
    stream = mine._batch(torch.tensor(toy_images([0], 3)), [0])
    replay = mine._batch(torch.tensor(toy_images([1, 0], 4)), [1, 0])
    slices = torch.Generator()
    slices.set_state(mine.rng["slice"].get_state())
    draws.clear()
    statistics = int(mine.model.net.backbone.norm.num_batches_tracked)
    found = float(mine.scheme.loss(stream, replay, mine._context()).detach())
    assert draws == [16, 32, 2, 2]
    assert int(mine.model.net.backbone.norm.num_batches_tracked) == statistics + 2

    views = [torch.cat([(first := sixteen_transforms(part.x)), first.flip(3)]) for part in (stream, replay)]
    labels = [sixteen_labels(part.y).repeat(2) for part in (stream, replay)]
    with torch.no_grad():
        features, projections = mine.model.outputs(torch.cat(views), "projection")
        expected = 0.0
        for position, chosen in enumerate((slice(0, 32), slice(32, 96))):
            unit = projections[chosen] / projections[chosen].norm(dim=1, keepdim=True).clamp_min(1e-12)
            whole = features[chosen] / features[chosen].norm(dim=1, keepdim=True).clamp_min(1e-12)
            start = int(torch.randint(32, (1,), generator=slices))
            similarity = (unit @ unit.T + unit @ whole[:, start : start + 128].T).double()
            term = stream_information_loss if position == 0 else memory_information_loss
            given = (labels[0],) if position == 0 else (labels[1], labels[1])
            expected += float(term(similarity, *given))
        images, own = views[1][:32], labels[1][:32]
        expected += float(mine.scheme._previous_loss(projections[32:64], images, own))
        logits = mine.model.logits(replay.x.flip(3))
        before = mine.scheme.previous.net(replay.x.flip(2), "logits")[1]
        expected += float(-logits.log_softmax(1)[[0, 1], replay.y].mean())
        expected += float((logits - before).square().mean())
    assert found == pytest.approx(expected, rel=1e-4)


def test_in_the_first_task_ocm_learns_the_streams_labels_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engram.schemes.ocm.augment_view", lambda images, settings, generator: images.flip(3))
    mine = feed(Learner("ocm", memory_size=8, net={"width": 8}), toy_stream(1, 2))
    stream = mine._batch(torch.tensor(toy_images([0, 1], 3)), [0, 1])
    slices = mine.rng["slice"].get_state()
    found = mine.scheme.loss(stream, None, mine._context())
    mine.rng["slice"].set_state(slices)
    with torch.no_grad():
        views, labels = mine.scheme._views(stream, mine._context())
        features, projections = mine.model.outputs(views, "projection")
        similarity = mine.scheme._similarity(features, projections, mine._context())
        labels_loss = -mine.model.logits(stream.x.flip(3)).log_softmax(1)[[0, 1], stream.y].mean()
        expected = stream_information_loss(similarity, labels) + labels_loss
    assert float(found.detach()) == pytest.approx(float(expected), rel=1e-4)


def test_dvc_adds_the_losses_of_stream_and_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engram.schemes.dvc.augment_view", lambda images, settings, generator: images.flip(3))
    mine = feed(Learner("dvc", memory_size=8, net={"width": 8}), toy_stream(1, 2))
    stream = mine._batch(torch.tensor(toy_images([0], 3)), [0])
    replay = mine._batch(torch.tensor(toy_images([1, 0], 4)), [1, 0])
    expected = 0.0
    with torch.no_grad():
        for batch in (stream, replay):
            first, second = mine.model.logits(torch.cat([batch.x, batch.x.flip(3)])).chunk(2)
            joint = mine.model.head("joint")(torch.cat([first, second], 1))
            expected += float(dual_view_loss(first, second, joint, batch.y))
    assert float(mine.scheme.loss(stream, replay, mine._context()).detach()) == pytest.approx(expected, rel=1e-4)


def test_ocm_replays_after_the_first_boundary_as_many_as_stated() -> None:
    mine = Learner("ocm", memory_size=8, net={"width": 8}, boundary_gap=3)
    mine.observe(toy_images([0, 1], 0), [0, 1])
    assert mine.scheme.replay_size(mine._context()) == 0
    mine.boundary()
    assert mine.scheme.finished_classes == 2
    assert mine.scheme.replay_size(mine._context()) == 14
    mine.labels = list(range(20))
    assert mine.scheme.replay_size(mine._context()) == 64


def test_the_term_against_the_previous_net_equals_the_loops() -> None:
    """Projections of now against those of the net at the boundary, self kept: mean over i, then over its positives."""
    mine = feed(Learner("ocm", memory_size=8, net={"width": 8}), toy_stream(1, 2))
    before = copy.deepcopy(mine.model.net).train()
    mine.boundary()
    with torch.no_grad():
        for parameter in mine.model.parameters():
            parameter += 0.01
    images, labels = torch.tensor(toy_images([0, 1, 0], 3)).float() / 255, [0, 1, 0]
    now = mine.model.outputs(images, "projection")[1].detach()
    unit = [row / row.norm() for row in now]
    with torch.no_grad():
        past = [row / row.norm() for row in before(images, "projection")[1]]
    total = 0.0
    for i in range(3):
        weights = [float(torch.exp(unit[i] @ past[j] / 0.07)) for j in range(3)]
        positives = [j for j in range(3) if labels[j] == labels[i]]
        total += sum(-math.log(weights[j] / sum(weights) + 1e-8) for j in positives) / len(positives)
    found = mine.scheme._previous_loss(now, images, torch.tensor(labels))
    assert float(found) == pytest.approx(total / 3, rel=1e-3)
