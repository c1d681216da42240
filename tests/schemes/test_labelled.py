"""Fine-tuning, experience replay, A-GEM, EWC++ and LwF against their formulas."""

import copy
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from engram import InputError, Learner
from engram.schemes import distillation_loss, own_classes_loss, project_gradient
from engram.schemes.ewc import normalized
from tests.helpers import feed, toy_images, toy_stream


def learner(method: str, **changes) -> Learner:
    return Learner(method, **{"memory_size": 8, "net": {"width": 8}, "boundary_gap": 4} | changes)


def step_by_hand(net: torch.nn.Module, loss: Tensor, rate: float) -> dict[str, Tensor]:
    names, parameters = zip(*net.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, parameters)
    return {name: p.detach() - rate * g for name, p, g in zip(names, parameters, gradients, strict=True)}


def logits(net: torch.nn.Module, x: Tensor) -> Tensor:
    return net(x, "logits")[1]


def pixels(labels: list[int], seed: int) -> Tensor:
    return torch.tensor(toy_images(labels, seed)) / 255


@pytest.mark.parametrize("passes", ["separate", "joint", "joint-mean", "thrice"])
def test_experience_replay_takes_the_step_of_its_formula(passes: str) -> None:
    mine = feed(learner("er", scheme={"passes": passes, "learning_rate": 0.05}), toy_stream(1, 4))
    net = copy.deepcopy(mine.model.net).train()
    replay_rng = copy.deepcopy(mine.rng)
    slots = torch.randperm(8, generator=replay_rng["replay"])[:10]
    replay, (x, y) = mine.memory.read(slots), (pixels([0, 1], 50), torch.tensor([0, 1]))
    if passes == "separate":
        loss = F.cross_entropy(logits(net, x), y) + F.cross_entropy(logits(net, replay.x), replay.y)
    else:
        both = logits(net, torch.cat([x, replay.x]))
        own, old = F.cross_entropy(both[:2], y), F.cross_entropy(both[2:], replay.y)
        loss = own + old if passes == "joint" else (2 * own + len(replay) * old) / (2 + len(replay))
    expected = step_by_hand(net, loss, 0.05)
    mine.observe(toy_images([0, 1], 50), [0, 1])
    for name, parameter in mine.model.net.named_parameters():
        torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-4, atol=1e-5)


def test_the_stream_loss_of_er_ace_knows_its_own_classes_alone() -> None:
    """Image by image: exponentials of the classes in the batch are summed, others get no gradient."""
    scores = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    labels = [1, 3, 3, 1]
    found = own_classes_loss(scores, torch.tensor(labels))
    expected = 0.0
    for row, label in zip(scores.tolist(), labels, strict=True):
        expected += math.log(math.exp(row[1]) + math.exp(row[3])) - row[label]
    assert float(found.detach()) == pytest.approx(expected / 4)
    (gradient,) = torch.autograd.grad(found, scores)
    assert not gradient[:, [0, 2, 4]].any()
    assert gradient[:, [1, 3]].all()


def test_er_ace_adds_the_loss_of_replay_over_all_classes() -> None:
    mine = feed(learner("er-ace"), toy_stream(2, 4))
    stream = mine._batch(torch.tensor(toy_images([2, 3], 3)), [2, 3])
    replay = mine._batch(torch.tensor(toy_images([0, 1, 2], 4)), [0, 1, 2])
    with torch.no_grad():
        own = own_classes_loss(mine.model.logits(stream.x), stream.y)
        expected = own + F.cross_entropy(mine.model.logits(replay.x), replay.y)
        assert float(mine.scheme.loss(stream, replay, mine._context())) == pytest.approx(float(expected), rel=1e-4)


def test_aser_moves_the_batch_norm_statistics_as_released() -> None:
    """Three passes in train mode: the stream before replay is chosen, the replay images, and both together."""
    mine = feed(learner("aser", memory_size=20), toy_stream(1, 4))
    net = copy.deepcopy(mine.model.net).train()
    x, seen = pixels([0, 1], 50), {}

    def choose_all(stream, count, ctx) -> Tensor:
        seen["statistics"] = ctx.model.net.backbone.norm.running_mean.clone()
        return ctx.memory.filled()

    mine.retrieval.select = choose_all
    replay = mine.memory.read(mine.memory.filled())
    mine.observe(toy_images([0, 1], 50), [0, 1])
    with torch.no_grad():
        net(x)
        torch.testing.assert_close(seen["statistics"], net.backbone.norm.running_mean)
        net(replay.x)
        net(torch.cat([x, replay.x]))
    for name, buffer in net.named_buffers():
        torch.testing.assert_close(dict(mine.model.net.named_buffers())[name], buffer, msg=name)


def test_projection_removes_exactly_what_works_against_the_reference() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        gradient, reference = torch.randn(2, 6, generator=generator, dtype=torch.float64)
        projected = project_gradient(gradient, reference)
        if gradient @ reference >= 0:
            assert torch.equal(projected, gradient)
        else:
            assert abs(float(projected @ reference)) < 1e-12
            removed = gradient - projected
            torch.testing.assert_close(removed / removed.norm(), -reference / reference.norm())


def test_a_gem_steps_never_work_against_replay_after_the_first_boundary() -> None:
    mine = learner("a-gem", scheme={"replay": 8})
    seen = []

    def watch(stream, ctx, plain=mine.scheme.adjust_gradients) -> None:
        before = torch.cat([p.grad.flatten() for p in ctx.model.parameters()])
        state = copy.deepcopy(ctx.model.net.state_dict())
        plain(stream, ctx)
        after = torch.cat([p.grad.flatten() for p in ctx.model.parameters()])
        ctx.model.net.load_state_dict(state)
        replay = ctx.memory.read(ctx.memory.filled()) if ctx.memory.size else None
        if replay is not None:
            loss = F.cross_entropy(ctx.model.logits(replay.x), replay.y)
            reference = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(ctx.model.parameters()))])
            seen.append(
                (ctx.iteration, float(before @ reference), float(after @ reference), torch.equal(before, after))
            )

    mine.scheme.adjust_gradients = watch
    feed(mine, toy_stream(2, 12))
    first_task = [entry for entry in seen if entry[0] < 12]
    later = [entry for entry in seen if entry[0] >= 12]
    assert all(same for *_, same in first_task)
    assert any(before < 0 for _, before, _, _ in later)
    assert all(after > -1e-3 * abs(before) - 1e-6 for _, before, after, _ in later)


def test_fisher_information_follows_the_released_recurrence() -> None:
    """Step by step: an update at every third step of a task comes before that step's squares are added."""
    mine = learner("ewc++", scheme={"fisher_interval": 3})
    gradients: list[dict[str, Tensor]] = []
    plain = mine.scheme.after_step

    def watch(ctx) -> None:
        gradients.append({name: p.grad.clone() for name, p in ctx.model.net.named_parameters()})
        plain(ctx)

    mine.scheme.after_step = watch
    for _ in range(2):
        feed(mine, toy_stream(1, 4))
        mine.boundary()
    name = "backbone.stem.weight"
    fisher = squares = torch.zeros_like(gradients[0][name])
    for step_of_task, gradient in zip([1, 2, 3, 4, 1, 2, 3, 4], gradients, strict=True):
        if step_of_task == 3:
            fisher, squares = 0.1 * fisher + 0.9 * squares / 3, torch.zeros_like(squares)
        squares = squares + gradient[name] ** 2
    torch.testing.assert_close(mine.scheme.fisher[name], fisher)
    torch.testing.assert_close(mine.scheme.squares[name], squares)


def test_importance_is_scaled_over_all_parameters_together() -> None:
    scaled = normalized({"a": torch.tensor([1.0, 3.0]), "b": torch.tensor([[5.0]])})
    assert scaled["a"].tolist() == [0, 0.5]
    assert scaled["b"].tolist() == [[1]]
    assert normalized({"a": torch.zeros(3)})["a"].tolist() == [0, 0, 0]


def test_ewc_penalty_holds_old_parameters_and_leaves_new_classes_free() -> None:
    mine = feed(learner("ewc++", scheme={"strength": 2.0, "fisher_interval": 2}), toy_stream(1, 6))
    assert not mine.scheme.importance
    mine.boundary()
    anchor = {name: p.detach().clone() for name, p in mine.model.net.named_parameters()}
    mine._add_classes([7])
    stream = mine._batch(torch.tensor(toy_images([0, 7], 1)), [0, 7])
    with torch.no_grad():
        for parameter in mine.model.parameters():
            parameter += 0.01
    ctx = mine._context()
    penalised = mine.scheme.loss(stream, None, ctx)
    plain = F.cross_entropy(mine.model.logits(stream.x), stream.y)
    expected = 0.0
    for name, parameter in mine.model.net.named_parameters():
        rows = len(anchor[name])
        difference = parameter.detach()[:rows] - anchor[name]
        expected += float((mine.scheme.importance[name][:rows] * difference**2).sum())
    assert float((penalised - plain).detach()) == pytest.approx(2.0 * expected, rel=1e-3)
    assert not mine.scheme.importance["heads.logits.weight"][2:].any()


def test_a_strength_that_would_diverge_is_refused() -> None:
    with pytest.raises(InputError, match="diverges"):
        learner("ewc++", scheme={"strength": 10.0})


def test_distillation_equals_soft_cross_entropy_by_hand() -> None:
    new, old = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    total = 0.0
    for n, o in zip(new, old, strict=True):
        p, q = (o / 2).exp() / (o / 2).exp().sum(), (n / 2).exp() / (n / 2).exp().sum()
        total -= 4 * sum(float(a * b.log()) for a, b in zip(p, q, strict=True))
    assert float(distillation_loss(new, old, 2.0)) == pytest.approx(total / 3)


def test_distillation_covers_the_classes_the_old_net_knows() -> None:
    new, old = torch.randn(3, 6), torch.randn(3, 4)
    assert distillation_loss(new, old) == distillation_loss(new[:, :4], old)


def test_lwf_weighs_old_and_new_by_finished_tasks() -> None:
    mine = feed(learner("lwf"), toy_stream(1, 5))
    stream = mine._batch(torch.tensor(toy_images([0, 1], 1)), [0, 1])
    first = mine.scheme.loss(stream, None, mine._context())
    own = F.cross_entropy(mine.model.logits(stream.x), stream.y)
    torch.testing.assert_close(first, own)
    for finished in (1, 2):
        mine.observe(toy_images([0, 1], finished), [0, 1])
        mine.boundary()
        old = copy.deepcopy(mine.model.net).train()
        with torch.no_grad():
            for parameter in mine.model.parameters():
                parameter += 0.01
        new = mine.model.logits(stream.x)
        share = 1 / (finished + 1)
        kept = distillation_loss(new, logits(old, stream.x))
        expected = share * F.cross_entropy(new, stream.y) + (1 - share) * kept
        torch.testing.assert_close(mine.scheme.loss(stream, None, mine._context()), expected, rtol=1e-4, atol=1e-5)


def test_heads_grow_with_the_classes_or_start_at_their_total() -> None:
    growing, full = learner("er"), learner("er", classes_total=7)
    x, y = toy_images([0, 1], 0), [0, 1]
    for mine, widths in ((growing, (2, 3)), (full, (7, 7))):
        mine.observe(x, y)
        assert mine.scores(x).shape == (2, widths[0])
        mine.observe(toy_images([5], 0), [5])
        assert mine.scores(x).shape == (2, widths[1])


def test_a_class_never_seen_may_win_only_in_a_head_made_for_it_and_has_no_label() -> None:
    mine = feed(learner("er", classes_total=3), toy_stream(1, 3))
    with torch.no_grad():
        mine.model.head("logits").bias[2] = 1e6
    assert mine.predict(toy_images([0, 1], 0)).tolist() == [None, None]
