"""Nets of the caller's own, as backbone and as summarizing net."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from engram import InputError, Learner, SummaryMemory
from engram.augmentations import RandomView
from engram.base.heads import GrowingLinear
from engram.base.initialization import initialize
from engram.base.interfaces import SummarizingNet
from tests.helpers import SMALL_THETA, feed, fingerprint, toy_images, toy_stream


def backbone() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2))


def theta() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.GroupNorm(2, 6), nn.ReLU(), nn.AvgPool2d(4))


OWN_THETA = {"memory_size": 8, "summarize": SMALL_THETA["summarize"]}


@pytest.mark.parametrize("method", ["er", "scr", "ewc++", "lwf", "mir", "gss"])
def test_any_module_learns_as_backbone(method: str) -> None:
    mine = Learner(method, memory_size=8, net=backbone())
    feed(mine, toy_stream(tasks=1, batches=40))
    assert mine.model.feature_width == 32
    predicted = mine.predict(toy_images([0, 1] * 10, 99))
    assert sum(guess == label for guess, label in zip(predicted, [0, 1] * 10, strict=True)) >= 18


class Awkward(nn.Module):
    """Views its features, ties two weights and keeps a buffer it does not save."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.convolution = nn.Conv2d(1, 4, 3, stride=2)
        self.first = nn.Linear(196, 196, bias=False)
        self.second = nn.Linear(196, 196, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("mean", torch.tensor(0.5), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        maps = self.convolution(x - self.mean)
        return self.second(self.first(maps.view(len(maps), -1)))  # type: ignore[no-any-return]


def test_views_tied_weights_and_unsaved_buffers_are_no_trouble(tmp_path: Path) -> None:
    batches = list(toy_stream(tasks=2, batches=6))
    whole, stopped = (Learner("lwf", net=Awkward(), boundary_gap=3, seed=1) for _ in range(2))
    feed(whole, batches)
    feed(stopped, batches[:7])
    stopped.save(tmp_path / "l")
    loaded = Learner.load(tmp_path / "l", net=Awkward())
    feed(loaded, batches[7:])
    assert fingerprint(loaded) == fingerprint(whole)


@pytest.mark.parametrize("method", ["er", "gss", "a-gem", "mir", "ewc++", "dvc"])
def test_frozen_layers_stay_as_they_are(method: str) -> None:
    given = backbone()
    given[0].requires_grad_(False)  # type: ignore[index]
    mine = Learner(method, memory_size=8, boundary_gap=3, net=given)
    feed(mine, toy_stream(tasks=2, batches=5))
    assert torch.equal(mine.model.net.backbone.module[0].weight, given[0].weight)  # type: ignore[union-attr,index]


class Odd(nn.Module):
    """Has a parameter that no output depends on, and one of no dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.unused = backbone(), nn.Parameter(torch.zeros(3))
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.backbone(x).flatten(1)


@pytest.mark.parametrize("method", ["er", "a-gem", "ewc++", "lwf", "mir", "gss", "dvc", "ocm"])
def test_parameters_unused_or_of_no_dimension_are_no_trouble(method: str) -> None:
    mine = Learner(method, memory_size=8, boundary_gap=3, net=Odd())
    feed(mine, toy_stream(tasks=3, batches=4))
    assert len(mine.labels) == 6


def test_a_net_given_in_eval_mode_is_trained_and_so_is_its_snapshot() -> None:
    mine = Learner("lwf", boundary_gap=3, net=backbone().eval())
    feed(mine, toy_stream(tasks=2, batches=4))
    assert mine.scheme.previous.net.training
    assert all(part.training for part in mine.scheme.previous.net.modules())
    assert all(part.training for part in mine.model.net.modules())


def test_a_summarizing_net_with_layer_norm_is_reset_as_pytorch_would() -> None:
    given = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.LayerNorm((4, 16, 16)), nn.PReLU(), nn.AvgPool2d(4))
    for parameter in given.parameters():
        parameter.data.fill_(7)
    mine = Learner("scr+ssd", theta=given, **OWN_THETA)
    mine.observe(toy_images([0], 0), [0])
    convolution, norm, bend, _ = mine.summarizer.theta.backbone.module
    assert mine.summarizer.theta.matched_weights == [convolution.weight]
    initialize(mine.summarizer.theta, torch.Generator().manual_seed(0))
    assert convolution.weight.abs().max() <= 1 / 3
    assert (norm.weight == 1).all()
    assert (norm.bias == 0).all()
    assert bend.weight.item() == 0.25


def test_layers_of_other_kinds_reset_themselves_from_our_generator_alone() -> None:
    def made(seed: int) -> Tensor:
        layer = nn.Bilinear(2, 3, 4)
        layer.weight, kernel = None, layer.weight
        layer.reset_parameters = lambda: kernel.data.uniform_()
        initialize(layer, torch.Generator().manual_seed(seed))
        return kernel.data.clone()

    before = torch.random.get_rng_state()
    assert torch.equal(made(1), made(1))
    assert not torch.equal(made(1), made(2))
    torch.random.set_rng_state(before)
    initialize(nn.PReLU(), torch.Generator())
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_net_without_parameters_leaves_the_heads_to_learn() -> None:
    mine = Learner("er", memory_size=8, net=nn.Flatten())
    feed(mine, toy_stream(tasks=1, batches=30))
    assert mine.predict(toy_images([0, 1], 99)).tolist() == [0, 1]


def test_the_module_given_is_copied_with_its_weights_and_stays_as_it_was() -> None:
    given = backbone()
    before = {name: tensor.clone() for name, tensor in given.state_dict().items()}
    mine = Learner("er", memory_size=8, net=given)
    mine._build((1, 16, 16))
    assert torch.equal(mine.model.net.backbone.module[0].weight, before["0.weight"])  # type: ignore[union-attr,index]
    feed(mine, toy_stream(tasks=1, batches=5))
    assert given.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in given.state_dict().items())


def test_own_nets_go_on_exactly_when_given_again(tmp_path: Path) -> None:
    def make() -> Learner:
        return Learner("scr+ssd", net=backbone(), theta=theta(), **OWN_THETA)

    batches = list(toy_stream(tasks=2, batches=10))
    whole, stopped = make(), make()
    feed(whole, batches)
    feed(stopped, batches[:11])
    stopped.save(tmp_path / "l")
    fresh = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
    loaded = Learner.load(tmp_path / "l", net=fresh, theta=theta())
    feed(loaded, batches[11:])
    assert whole.rounds > 0
    assert fingerprint(loaded) == fingerprint(whole)


def test_what_a_checkpoint_cannot_hold_is_asked_for(tmp_path: Path) -> None:
    Learner("er", net=backbone()).save(tmp_path / "own")
    Learner("er").save(tmp_path / "ours")
    with pytest.raises(InputError, match="net of your own, a Sequential"):
        Learner.load(tmp_path / "own")
    with pytest.raises(InputError, match="built-in net"):
        Learner.load(tmp_path / "ours", net=backbone())


def test_a_net_of_another_shape_is_refused(tmp_path: Path) -> None:
    mine = Learner("er", net=backbone())
    feed(mine, toy_stream(tasks=1, batches=1))
    mine.save(tmp_path / "own")
    with pytest.raises(ValueError, match="does not fit"):
        Learner.load(tmp_path / "own", net=nn.Sequential(nn.Conv2d(1, 4, 3)))


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (nn.Conv2d(3, 8, 3), "cannot take images"),
        (nn.LSTM(16, 4), "cannot take images"),
        (nn.Flatten(0), "one row of features per image"),
    ],
)
def test_a_net_that_gives_no_features_is_refused_before_anything_changes(net: nn.Module, message: str) -> None:
    mine = Learner("er", memory_size=8, net=net)
    before = fingerprint(mine)
    with pytest.raises(InputError, match=message):
        mine.observe(toy_images([0, 1], 0), [0, 1])
    assert fingerprint(mine) == before


def test_a_theta_that_mixes_images_or_has_nothing_to_match_is_refused() -> None:
    with pytest.raises(InputError, match="batch norm"):
        SummaryMemory(theta=backbone())
    with pytest.raises(InputError, match="no weights"):
        SummaryMemory(theta=nn.Flatten())
    with pytest.raises(InputError, match="no theta"):
        Learner("er", theta=theta())


def test_own_theta_summarizes() -> None:
    memory = SummaryMemory(theta=theta(), **OWN_THETA)
    for x, y in toy_stream(tasks=2, batches=12):
        memory.update(x, y)
    assert memory.rounds > 0
    assert bool(memory.memory.summary.any())
    assert memory.footprint()["theta"] > 0


class WithItsOwnHead(SummarizingNet):
    """A summarizing net whose features, head and matched weights are all its own."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3)
        self.head = GrowingLinear(4 * 49, 0)

    @property
    def matched_weights(self) -> list[Tensor]:
        return [self.convolution.weight]

    def features(self, x: Tensor) -> Tensor:
        return nn.functional.avg_pool2d(self.convolution(x).relu(), 2).flatten(1)

    def classify(self, features: Tensor) -> Tensor:
        logits: Tensor = self.head(features)
        return logits

    def grow(self, classes: int, generator: torch.Generator) -> None:
        self.head.grow(classes, generator)


def test_a_whole_summarizing_net_is_used_as_it_is() -> None:
    memory = SummaryMemory(theta=WithItsOwnHead(), **OWN_THETA)
    for x, y in toy_stream(tasks=1, batches=12):
        memory.update(x, y)
    assert isinstance(memory.summarizer.theta, WithItsOwnHead)
    assert memory.rounds > 0


def test_a_pretrained_theta_is_kept_where_its_head_only_grows() -> None:
    kept = SummaryMemory(theta=theta(), memory_size=8, summarize={"new_classes": "grow", "theta_learning_rate": 0.0})
    fresh = SummaryMemory(theta=theta(), memory_size=8, summarize={"theta_learning_rate": 0.0})
    for memory in (kept, fresh):
        memory.update(toy_images([0, 1], 0), [0, 1])
    given = theta().state_dict()["0.weight"]
    assert torch.equal(kept.summarizer.theta.matched_weights[0], given)
    assert not torch.equal(fresh.summarizer.theta.matched_weights[0], given)


@pytest.mark.parametrize("method", ["er", "scr", "dvc"])
def test_a_single_image_trains_a_net_with_batch_norm_over_vectors(method: str) -> None:
    torch.manual_seed(3)
    net = nn.Sequential(nn.Conv2d(1, 4, 3, 4), nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU())
    mine = Learner(method, memory_size=4, net=net)
    for label in (0, 1, 0):
        mine.observe(toy_images([label], label), [label])
    assert mine.iteration == 3
    assert mine.memory.size == 3


class PartlyUsed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.spare = nn.Conv2d(1, 4, 3, 2), nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution(x).relu()  # type: ignore[no-any-return]


def test_a_theta_with_layers_it_does_not_use_is_matched_by_the_others() -> None:
    memory = SummaryMemory(theta=PartlyUsed(), **OWN_THETA)
    for x, y in toy_stream(tasks=2, batches=12):
        memory.update(x, y)
    assert memory.rounds > 0
    with pytest.raises(InputError, match="lazy"):
        SummaryMemory(theta=nn.LazyConv2d(4, 3))


def test_a_net_for_one_size_of_images_is_told_how_to_train_on_views_of_another() -> None:
    flat = nn.Sequential(nn.Flatten(), nn.Linear(256, 8))
    x, y = toy_images([0, 1], 0), [0, 1]
    with pytest.raises(InputError, match=r"augment=\{'side': 1\}"):
        Learner("er", augment=RandomView(side=0.75), net=flat).observe(x, y)
    with pytest.raises(InputError, match="gives 64 features for images of 16 pixels and 36 for the views of 12"):
        Learner("er", augment=RandomView(side=0.75), net=nn.Conv2d(1, 1, 3, stride=2, padding=1)).observe(x, y)
    Learner("er", augment=RandomView(), net=flat).observe(x, y)
    pooled = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(2))
    Learner("er", augment=RandomView(side=0.75), net=pooled).observe(x, y)
