"""Cutting a net in two changes nothing that it computes, and what cannot be cut is refused with a reason."""

import pytest
import torch
from torch import Tensor, nn

from engram import InputError, Learner
from engram.latents import cut, require_cut, split_net
from engram.latents.front import as_maps, from_maps
from engram.nets import ReducedResNet18
from tests.latents.nets import Tokens, pretrained

CPU = torch.device("cpu")


def resnet() -> nn.Module:
    torch.manual_seed(1)
    return ReducedResNet18(1, 16, width=16)


class Masked(nn.Module):
    """Its forward pass takes more than images, with defaults, and hands it to layers above the cut, as timm's do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Flatten(), nn.Linear(256, 4)

    def forward(self, images: Tensor, mask: Tensor | None = None, *, scale: float = 2.0) -> Tensor:
        """Return features (N,4)."""
        flat = self.first(images) if mask is None else self.first(images * mask)
        features: Tensor = self.second(flat) * scale
        return features if mask is None else features * mask.mean()


@pytest.mark.parametrize(
    ("build", "layer"),
    [
        *((pretrained, str(index)) for index in range(7)),
        *((resnet, layer) for layer in ("stem", "norm", "blocks", "blocks.0", "blocks.6")),
        *((Tokens, layer) for layer in ("patches", "first", "second")),
        *((Masked, layer) for layer in ("first", "second")),
    ],
)
def test_both_parts_together_compute_what_the_whole_does(build: type[nn.Module], layer: str) -> None:
    net, images = build().eval(), torch.rand(3, 1, 16, 16)
    with torch.no_grad():
        expected = net(images)
        front, above = split_net(net, f"until:{layer}", (1, 16, 16), CPU, "float32")
        latents = front.latents(images)
        assert torch.allclose(above.eval()(latents), expected.flatten(1), atol=1e-6), "up to the layout of the maps"
    assert latents.shape[1:] == front.shape
    seen: list[Tensor] = []
    net.get_submodule(layer).register_forward_hook(lambda module, inputs, output: seen.append(output.clone()))
    with torch.no_grad():
        net(images)
    assert torch.equal(as_maps(seen[0]), latents), "the latents are what the layer gives"


def test_a_net_frozen_as_a_whole_gives_its_features() -> None:
    net = pretrained().eval()
    front, above = split_net(net, "all", (1, 16, 16), CPU, "float32")
    images = torch.rand(2, 1, 16, 16)
    assert torch.equal(above(front.latents(images)), net(images).flatten(1))
    assert list(above.parameters()) == []


def test_layers_above_that_act_in_place_leave_the_latents_alone() -> None:
    front, above = split_net(pretrained(), "until:1", (1, 16, 16), CPU, "float32")
    latents = front.latents(torch.rand(2, 1, 16, 16))
    assert (latents < 0).any(), "ReLU comes next, in place"
    before = latents.clone()
    above(latents)
    assert torch.equal(latents, before)


@pytest.mark.parametrize("shape", [(5,), (4, 5), (5, 3, 2)])
def test_what_a_cut_gives_comes_back_from_its_map(shape: tuple[int, ...]) -> None:
    outputs = torch.rand(2, *shape)
    maps = as_maps(outputs)
    assert maps.ndim == 4
    assert torch.equal(from_maps(maps, len(shape)), outputs)


class Skipping(nn.Module):
    """Adds its input to what its layers give."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)) + x  # type: ignore[no-any-return]


class Deciding(Skipping):
    """Looks at values, so that its forward pass is not the same for all images."""

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)) if x.mean() > 0 else self.first(x)  # type: ignore[no-any-return]


class Twice(Skipping):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.second(self.first(x)))  # type: ignore[no-any-return]


class Tied(Skipping):
    def __init__(self) -> None:
        super().__init__()
        self.third = nn.Conv2d(4, 4, 3, padding=1)
        self.third.weight = self.second.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.third(self.second(self.first(x)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("net", "freeze", "reason"),
    [
        (pretrained(), "7", "need 'all', or 'until:NAME'"),
        (pretrained(), 3, "need 'all', or 'until:NAME'"),
        (pretrained(), "until:7", r"has no layer '7'.*begin with 0, 1, 2"),
        (Skipping(), "until:frist", "did you mean 'first'"),
        (Skipping(), "until:first", "uses x again above 'first'"),
        (
            Deciding(),
            "until:first",
            r"cannot be followed to 'first'.*freeze='until:0'",
        ),
        (Twice(), "until:second", "calls 'second' 2 times"),
        (Tied(), "until:second", "same weights below and above 'second'"),
    ],
)
def test_what_cannot_be_cut_is_refused_with_a_reason(net: nn.Module, freeze: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        require_cut(net, freeze)
    with pytest.raises(InputError, match=reason):
        Learner("er", net=net, freeze=freeze)


def test_modules_that_cannot_be_followed_can_still_be_cut_between() -> None:
    net = nn.Sequential(Deciding(), nn.Conv2d(4, 2, 3))
    front, above = cut(net, "until:0")
    images = torch.rand(2, 1, 16, 16)
    assert torch.equal(above(front(images)), net(images))


def test_a_cut_whose_output_is_no_map_is_refused() -> None:
    learner = Learner("er", net=nn.Sequential(nn.Unflatten(3, (4, 4)), nn.Flatten(2)), freeze="until:0")
    with pytest.raises(InputError, match=r"cut gives \(1, 16, 4, 4\).*three dimensions at most"):
        learner.observe(torch.rand(2, 1, 16, 16), [0, 1])
