"""Shapes, layouts and initialization of the nets."""

import pytest
import torch

from engram import InputError
from engram.base.heads import GrowingLinear
from engram.base.initialization import materialize
from engram.nets import ConvNet, ReducedResNet18

CPU = torch.device("cpu")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("size", "features"), [(16, 160), (28, 160), (32, 160), (64, 640), (84, 640)])
def test_resnet_feature_width(size: int, channels: int, features: int) -> None:
    net = materialize(lambda: ReducedResNet18(channels, size), generator(), CPU)
    assert net.feature_width == features
    assert net(torch.rand(2, channels, size, size)).shape == (2, features)


@pytest.mark.parametrize(("size", "view"), [(16, 12), (32, 24), (32, 40), (64, 48), (84, 63)])
def test_resnet_gives_as_many_features_for_views_of_another_size(size: int, view: int) -> None:
    net = materialize(lambda: ReducedResNet18(3, size, width=8), generator(), CPU).eval()
    x = torch.rand(2, 3, view, view)
    features = net(x)
    assert features.shape == (2, net.feature_width)
    maps = net.blocks(torch.relu(net.norm(net.stem(x))))
    cells = round((net.feature_width / maps.shape[1]) ** 0.5)
    torch.testing.assert_close(features.view(2, -1, cells, cells).mean((2, 3)), maps.mean((2, 3)), atol=0.05, rtol=0.1)
    if cells == 1:
        torch.testing.assert_close(features, maps.mean((2, 3)))


def test_reduced_resnet_has_the_published_size() -> None:
    net = ReducedResNet18(3, 32)
    widths = [block.conv1.out_channels for block in net.blocks]
    assert widths == [20, 20, 40, 40, 80, 80, 160, 160]
    stem, shortcuts = 3 * 20 * 9, 20 * 40 + 40 * 80 + 80 * 160
    stages = 9 * (4 * 20**2 + (20 * 40 + 3 * 40**2) + (40 * 80 + 3 * 80**2) + (80 * 160 + 3 * 160**2))
    norms = 2 * (20 + 4 * 20 + 5 * 40 + 5 * 80 + 5 * 160)
    assert sum(p.numel() for p in net.parameters()) == stem + shortcuts + stages + norms


@pytest.mark.parametrize(("size", "features"), [(16, 512), (32, 2048), (64, 8192), (84, 12800)])
def test_convnet_feature_width(size: int, features: int) -> None:
    net = materialize(lambda: ConvNet(3, size), generator(), CPU)
    net.grow(7, generator())
    x = torch.rand(2, 3, size, size)
    assert net.features(x).shape == (2, features)
    assert net(x).shape == (2, 7)


def test_convnet_treats_each_image_alone() -> None:
    net = materialize(lambda: ConvNet(1, 16, 8), generator(), CPU)
    x = torch.rand(5, 1, 16, 16)
    torch.testing.assert_close(net.features(x)[2:3], net.features(x[2:3]))


def test_convnet_norm_is_instance_norm() -> None:
    net = materialize(lambda: ConvNet(1, 16, 8), generator(), CPU)
    x = torch.rand(3, 8, 6, 6)
    torch.testing.assert_close(net.norms[0](x), torch.nn.functional.instance_norm(x, eps=1e-5))


def test_building_draws_from_the_given_generator_alone() -> None:
    state = torch.random.get_rng_state()
    first = materialize(lambda: ReducedResNet18(1, 16, 8), generator(4), CPU)
    assert torch.equal(torch.random.get_rng_state(), state)
    again = materialize(lambda: ReducedResNet18(1, 16, 8), generator(4), CPU)
    other = materialize(lambda: ReducedResNet18(1, 16, 8), generator(5), CPU)
    assert torch.equal(first.stem.weight, again.stem.weight)
    assert not torch.equal(first.stem.weight, other.stem.weight)


def test_initialization_has_the_spread_of_torch_defaults() -> None:
    ours = materialize(lambda: torch.nn.Conv2d(16, 512, 3), generator(), CPU).requires_grad_(False)
    theirs = torch.nn.Conv2d(16, 512, 3).requires_grad_(False)
    assert float(ours.weight.std()) == pytest.approx(float(theirs.weight.std()), rel=0.02)
    assert float(ours.weight.abs().max()) == pytest.approx(float(theirs.weight.abs().max()), rel=0.01)
    assert float(ours.bias.std()) == pytest.approx(float(theirs.bias.std()), rel=0.1)


def test_growing_keeps_old_outputs() -> None:
    head = materialize(lambda: GrowingLinear(4, 2), generator(), CPU)
    x = torch.rand(3, 4)
    before = head(x).detach()
    head.grow(5, generator())
    assert head(x).shape == (3, 5)
    torch.testing.assert_close(head(x)[:, :2], before)


def test_too_narrow_a_net_is_refused() -> None:
    with pytest.raises(InputError, match="width"):
        ReducedResNet18(3, 32, width=4)
