"""GSS and ASER as memory policies, and ASER's retrieval, down to memories too small for their sets."""

import copy

import pytest
import torch
from scipy.stats import chisquare

from engram import Learner
from engram.base.gradients import label_gradient
from engram.memory.policies.gss import draw_without_replacement, replacement_probability, victim_weights
from tests.helpers import feed, toy_images, toy_stream


def learner(method: str, **changes) -> Learner:
    return Learner(method, **{"memory_size": 8, "net": {"width": 8}, "boundary_gap": 4} | changes)


def test_the_more_alike_one_is_replaced() -> None:
    chance = replacement_probability(torch.tensor([1.0, 0.0, -1.0, -1.0]), torch.tensor([0.0, 0.0, 0.5, -1.0]))
    torch.testing.assert_close(chance, torch.tensor([2 / 3, 0.5, 0.0, 0.5]))


def test_victims_are_drawn_in_proportion_and_filled_uniformly() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = victim_weights(torch.tensor([0.1, 0.6, 1.1]))
    torch.testing.assert_close(weights, torch.tensor([0.0, 0.5 / 1.01, 1.0 / 1.01]))
    first = torch.tensor([int(draw_without_replacement(weights, 1, generator)[0]) for _ in range(3000)])
    counts = torch.bincount(first, minlength=3)
    assert counts[0] == 0
    assert chisquare(counts[1:].numpy(), [1000, 2000]).pvalue > 1e-3
    assert sorted(draw_without_replacement(weights, 3, generator).tolist()) == [0, 1, 2]
    even = torch.bincount(
        torch.tensor([int(draw_without_replacement(torch.zeros(4), 1, generator)[0]) for _ in range(2000)])
    )
    assert chisquare(even.numpy()).pvalue > 1e-3


def test_scores_are_the_largest_cosine_with_reference_gradients() -> None:
    mine = feed(learner("gss", memory_size=30), toy_stream(1, 6))
    policy, ctx = mine.policy, mine._context()
    batch = mine._batch(torch.tensor(toy_images([0, 1], 3)), [0, 1])
    rng = copy.deepcopy(mine.rng)
    permuted = torch.randperm(24, generator=rng["memory"])
    references = [label_gradient(mine.memory.read(permuted[start : start + 10]), ctx) for start in (0, 10)]
    own = [label_gradient(batch[torch.tensor([i])], ctx) for i in range(2)]
    expected = [max(float(g @ r / (g.norm() * r.norm())) for r in references) for g in own]
    assert policy._scores(batch, ctx) == pytest.approx(expected, abs=1e-4)


def test_gss_fills_with_scores_and_drops_the_rest_of_the_batch_that_fills_it() -> None:
    mine = learner("gss", memory_size=6)
    mine.observe(toy_images([0, 1, 0, 1], 0), [0, 1, 0, 1])
    assert mine.memory.score[:4].tolist() == pytest.approx([0.1] * 4)
    mine.observe(toy_images([0, 1, 0, 1], 1), [0, 1, 0, 1])
    assert mine.memory.size == 6
    assert (mine.memory.score[4:6] != 0).all()


def test_gss_leaves_the_memory_alone_unless_the_batch_points_away(monkeypatch: pytest.MonkeyPatch) -> None:
    from engram.memory.policies import gss

    mine = feed(learner("gss", memory_size=6), toy_stream(1, 4))
    held = [record.clone() for record in mine.memory.records]
    for cosine, changes in ((0.2, False), (-0.9, True)):
        monkeypatch.setattr(gss, "_largest_cosine", lambda *_, value=cosine: torch.tensor(value))
        stream = mine._batch(torch.tensor(toy_images([0, 1, 0, 1], 40)), [0, 1, 0, 1])
        report = mine.policy.store(stream, mine._context())
        assert bool(report.stored) == changes
        assert all(float(mine.memory.score[slot]) == pytest.approx(-0.9) for slot in report.stored)
        if not changes:
            assert all(torch.equal(a, b) for a, b in zip(held, mine.memory.records, strict=True))


def test_gss_replaces_the_ith_victim_by_the_ith_image_with_its_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    from engram.memory.policies import gss

    mine = feed(learner("gss", memory_size=6), toy_stream(1, 4))
    monkeypatch.setattr(gss, "_largest_cosine", lambda *_: torch.tensor(-0.5))
    monkeypatch.setattr(gss, "draw_without_replacement", lambda *_: torch.tensor([4, 2, 0, 1]))
    stream = mine._batch(torch.tensor(toy_images([0, 1, 0, 1], 40)), [0, 1, 0, 1])
    held = mine.memory.read(mine.memory.filled()).x
    monkeypatch.setattr(gss, "replacement_probability", lambda victim, newcomer: torch.zeros(len(victim)))
    assert mine.policy.store(stream, mine._context()).stored == []
    assert torch.equal(mine.memory.read(mine.memory.filled()).x, held)
    monkeypatch.setattr(gss, "replacement_probability", lambda victim, newcomer: torch.tensor([1.0, 0, 1, 0]))
    assert sorted(mine.policy.store(stream, mine._context()).stored) == [0, 4]
    assert torch.equal(mine.memory.read(torch.tensor([4, 0])).x, stream.x[[0, 2]])


def test_gradients_that_images_are_compared_by_are_taken_in_eval_mode() -> None:
    mine = feed(learner("gss", memory_size=30), toy_stream(1, 6))
    batch, parameters = mine.memory.read(torch.arange(6)), list(mine.model.parameters())

    def gradient(training: bool) -> torch.Tensor:
        net = copy.deepcopy(mine.model.net).train(training)
        loss = torch.nn.functional.cross_entropy(net(batch.x, "logits")[1], batch.y)
        return torch.cat([own.flatten() for own in torch.autograd.grad(loss, list(net.parameters()))])

    found = label_gradient(batch, mine._context())
    assert len(found) == sum(parameter.numel() for parameter in parameters)
    torch.testing.assert_close(found, gradient(training=False))
    assert not torch.allclose(found, gradient(training=True))


def test_zero_gradients_are_at_a_right_angle_to_everything() -> None:
    from engram.memory.policies.gss import _largest_cosine

    assert float(_largest_cosine(torch.zeros(5), torch.rand(3, 5))) == 0
    assert float(_largest_cosine(torch.rand(5), torch.zeros(3, 5))) == 0


def test_aser_keeps_labels_with_their_images_and_the_memory_full() -> None:
    mine = learner("aser", memory_size=12)
    stored = {}
    for x, y in toy_stream(3, 10):
        for image, label in zip(x, y, strict=True):
            stored[(image / 255).astype("float32").tobytes()] = label
        mine.observe(x, y)
    assert mine.memory.size == 12
    batch = mine.memory.read(mine.memory.filled())
    for image, label in zip(batch.x, batch.y.tolist(), strict=True):
        assert stored[image.numpy().tobytes()] == mine.labels[label]


def test_aser_update_keeps_the_most_valuable_of_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """With values forced so that stream images win, they take the slots of memory candidates."""
    from engram.memory.policies import aser

    mine = feed(learner("aser", memory_size=12), toy_stream(1, 6))

    def stream_wins(candidates, labels, points, point_labels, neighbors) -> torch.Tensor:
        return torch.arange(len(candidates)).float().expand(len(points), -1)

    monkeypatch.setattr(aser, "knn_shapley", stream_wins)
    stream = mine._batch(torch.tensor(toy_images([0, 1], 40)), [0, 1])
    report = mine.policy.store(stream, mine._context())
    assert len(report.stored) == 2
    held = mine.memory.read(torch.tensor(report.stored)).x
    assert {image.numpy().tobytes() for image in held} == {image.numpy().tobytes() for image in stream.x}


def test_aser_update_counts_the_classes_that_were_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two a class of six announced ones make twelve candidates of thirty images outside the evaluation set; of the two
    seen so far they would make four."""
    from engram.memory.policies import aser

    candidates: list[int] = []

    def note(images, labels, points, point_labels, neighbors) -> torch.Tensor:
        candidates.append(len(images))
        return torch.zeros(len(points), len(images))

    monkeypatch.setattr(aser, "knn_shapley", note)
    for total in (None, 6):
        mine = feed(learner("aser", memory_size=34, classes_total=total), toy_stream(1, 9))
        mine.policy.store(mine._batch(torch.tensor(toy_images([0, 1], 40)), [0, 1]), mine._context())
    assert candidates[-1] == 12 + 2
    assert 4 + 2 in candidates


def test_aser_retrieval_takes_the_most_valuable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Valued by brightness over the cooperative set, and by nothing over the stream: the brightest are replayed."""
    from engram.retrieval import aser

    mine = feed(learner("aser", memory_size=40), toy_stream(2, 12))
    stream = mine._batch(torch.tensor(toy_images([2], 40)), [2])
    candidates = torch.tensor([3, 8, 21, 30, 34])
    monkeypatch.setattr(
        aser, "sample_per_class", lambda labels, *rest: candidates if len(labels) == 40 else torch.arange(4)
    )
    bright = mine.memory.read(candidates).x.flatten(1).mean(1)

    def valued(images, labels, points, point_labels, neighbors) -> torch.Tensor:
        return bright.expand(len(points), -1) if len(points) == 4 else torch.zeros(len(points), len(images))

    monkeypatch.setattr(aser, "knn_shapley", valued)
    chosen = mine.retrieval.select(stream, 2, mine._context())
    assert chosen.tolist() == candidates[bright.topk(2).indices].tolist()

    def against(images, labels, points, point_labels, neighbors) -> torch.Tensor:
        return torch.zeros(len(points), len(images)) if len(points) == 4 else bright.expand(len(points), -1)

    monkeypatch.setattr(aser, "knn_shapley", against)
    chosen = mine.retrieval.select(stream, 2, mine._context())
    assert chosen.tolist() == candidates[(-bright).topk(2).indices].tolist()


def test_aser_retrieval_is_random_until_the_memory_overflows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from engram.retrieval import aser

    mine = feed(learner("aser", memory_size=40), toy_stream(2, 4))
    called = []
    monkeypatch.setattr(aser, "knn_shapley", lambda *args: called.append(1) or torch.zeros(len(args[2]), len(args[0])))
    stream = mine._batch(torch.tensor(toy_images([2], 40)), [2])
    assert len(mine.retrieval.select(stream, 4, mine._context())) == 4
    assert not called
    mine.memory.seen = 1000
    assert len(mine.retrieval.select(stream, 4, mine._context())) == 4
    assert len(called) == 2
    classes = len(mine.memory.labels[: mine.memory.size].unique())
    chosen = mine.retrieval.select(stream, 30, mine._context())
    assert len(chosen.unique()) == len(chosen) == 2 * classes


@pytest.mark.parametrize("act", ["retrieve", "store"])
def test_aser_s_sets_are_apart_and_seen_in_eval_mode(act: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = feed(learner("aser", memory_size=40), toy_stream(2, 12))
    stream = mine._batch(torch.tensor(toy_images([2, 3], 40)), [2, 3])
    ctx, read, modes = mine._context(), [], []
    reading, features = mine.memory.read, mine.model.features
    monkeypatch.setattr(mine.memory, "read", lambda slots: read.append(slots) or reading(slots))
    monkeypatch.setattr(mine.model, "features", lambda x: modes.append(mine.model.net.training) or features(x))
    if act == "retrieve":
        mine.retrieval.select(stream, 4, ctx)
    else:
        mine.policy.store(stream, ctx)
    ours, theirs = read
    assert min(len(ours), len(theirs)) > 0
    assert not torch.isin(ours, theirs).any()
    assert set(modes) == {False}


def test_aser_in_a_memory_too_small_for_its_sets_goes_on_at_random() -> None:
    """Two images a class are the whole memory: nothing is left to compete, yet new classes must come in."""
    mine = feed(learner("aser", memory_size=4), toy_stream(2, 12))
    assert 2 in mine.memory.labels.tolist() or 3 in mine.memory.labels.tolist()
    mine.memory.labels[:4] = torch.tensor([0, 0, 1, 1])
    stream = mine._batch(torch.tensor(toy_images([2], 40)), [2])
    drawn = {tuple(mine.retrieval.select(stream, 1, mine._context()).tolist()) for _ in range(60)}
    assert drawn == {(0,), (1,), (2,), (3,)}
