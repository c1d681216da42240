"""The matching losses against slow, obvious versions, in float64."""

import pytest
import torch
from torch import Tensor

from engram.base.initialization import initialize
from engram.nets import ConvNet
from engram.summarize import (
    MATCHING,
    DifferentiableAugmentation,
    augment_differentiably,
    draw_augmentation,
    gradient_matching_loss,
    gradient_target,
    gradient_terms,
    relationship_loss,
)
from tests.helpers import feed, small_learner, toy_stream

SIZE, LABEL, GAMMA = 16, 2, 0.7


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def theta() -> ConvNet:
    net = ConvNet(channels=3, size=SIZE, width=6)
    generator = torch.Generator().manual_seed(1)
    net.head.grow(5, generator)
    initialize(net, generator)
    return net.double()


def obvious_gradient_matching(real: list[Tensor], synthetic: list[Tensor]) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for r, s in zip(real, synthetic, strict=True):
        for r_entry, s_entry in zip(r.flatten(), s.flatten(), strict=True):
            total = total + (s_entry - r_entry) ** 2
    return total


def obvious_relationship(real: Tensor, synthetic: Tensor, anchors: Tensor) -> Tensor:
    def mean(features: Tensor) -> Tensor:
        return sum(f / f.norm() for f in features) / len(features)

    total = torch.zeros((), dtype=torch.float64)
    for anchor in anchors:
        unit = anchor / anchor.norm()
        total = total + abs((mean(synthetic) - unit).norm() - (mean(real) - unit).norm())
    return total


def obvious_augment(image: Tensor, brightness: float, saturation: float, contrast: float, dy: int, dx: int) -> Tensor:
    image = image + brightness
    gray = image.mean(0)
    image = torch.stack([gray + (channel - gray) * saturation for channel in image])
    image = image.mean() + (image - image.mean()) * contrast
    moved = torch.zeros_like(image)
    height, width = image.shape[1:]
    for y in range(height):
        for x in range(width):
            if 0 <= y - dy < height and 0 <= x - dx < width:
                moved[:, y, x] = image[:, y - dy, x - dx]
    return moved


def obvious_class_gradient(theta: ConvNet, images: Tensor) -> tuple[list[Tensor], Tensor]:
    """One image at a time, then the mean."""
    per_image, features = [], []
    for image in images:
        logits = theta(image[None])[0]
        loss = -logits[LABEL] + logits.exp().sum().log()
        per_image.append(torch.autograd.grad(loss, [c.weight for c in theta.convolutions], create_graph=True))
        features.append(theta.features(image[None])[0])
    return [torch.stack(layer).mean(0) for layer in zip(*per_image, strict=True)], torch.stack(features)


def obvious_gradient_terms(theta: ConvNet, real: Tensor, synthetic: Tensor, anchors: Tensor) -> Tensor:
    real_gradient, real_features = obvious_class_gradient(theta, real)
    synthetic_gradient, synthetic_features = obvious_class_gradient(theta, synthetic)
    matching = sum(((s - r.detach()) ** 2).sum() for r, s in zip(real_gradient, synthetic_gradient, strict=True))
    return matching + GAMMA * obvious_relationship(real_features.detach(), synthetic_features, anchors)


def relative_error(value: Tensor, expected: Tensor) -> float:
    return float(((value - expected).norm() / expected.norm()).detach())


def test_gradient_matching_equals_the_sum_over_entries() -> None:
    real = [random(4, 3, 3, 3, seed=1), random(2, 4, 3, 3, seed=2)]
    synthetic = [random(4, 3, 3, 3, seed=3).requires_grad_(), random(2, 4, 3, 3, seed=4).requires_grad_()]
    value, expected = gradient_matching_loss(real, synthetic), obvious_gradient_matching(real, synthetic)
    assert relative_error(value, expected) <= 1e-6
    for found, wanted in zip(
        torch.autograd.grad(value, synthetic), torch.autograd.grad(expected, synthetic), strict=True
    ):
        assert relative_error(found, wanted) <= 1e-6


def test_relationship_equals_the_sum_over_anchors() -> None:
    real, synthetic = random(7, 9, seed=1), random(3, 9, seed=2).requires_grad_()
    anchors = random(5, 9, seed=3)
    value, expected = relationship_loss(real, synthetic, anchors), obvious_relationship(real, synthetic, anchors)
    assert relative_error(value, expected) <= 1e-6
    (found,), (wanted,) = torch.autograd.grad(value, synthetic), torch.autograd.grad(expected, synthetic)
    assert relative_error(found, wanted) <= 1e-6


def test_relationship_has_a_finite_gradient_where_a_mean_meets_an_anchor() -> None:
    synthetic = random(1, 6).requires_grad_()
    (gradient,) = torch.autograd.grad(relationship_loss(random(4, 6, seed=1), synthetic, synthetic.detach()), synthetic)
    assert gradient.isfinite().all()


def test_augmentation_equals_one_image_at_a_time() -> None:
    images = random(6, 3, SIZE, SIZE).requires_grad_()
    draw = draw_augmentation(6, SIZE, torch.Generator().manual_seed(3))
    expected = torch.stack(
        [
            obvious_augment(image, *(float(v) for v in values), int(shift[0]), int(shift[1]))
            for image, *values, shift in zip(
                images, draw.brightness, draw.saturation, draw.contrast, draw.shift, strict=True
            )
        ]
    )
    value = augment_differentiably(images, draw)
    assert relative_error(value, expected) <= 1e-6
    weights = random(6, 3, SIZE, SIZE, seed=9)
    (found,) = torch.autograd.grad((value * weights).sum(), images)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), images)
    assert relative_error(found, wanted) <= 1e-6


@pytest.mark.parametrize(("size", "reach"), [(32, 4), (64, 8), (84, 11)])
def test_augmentation_draws_cover_their_ranges(size: int, reach: int) -> None:
    draw = draw_augmentation(20_000, size, torch.Generator().manual_seed(0))
    for values, low, high in ((draw.brightness, -0.5, 0.5), (draw.saturation, 0, 2), (draw.contrast, 0.5, 1.5)):
        assert low <= values.min() < low + 0.01
        assert high - 0.01 < values.max() <= high
    assert set(draw.shift.flatten().tolist()) == set(range(-reach, reach + 1))
    assert abs(float(torch.corrcoef(draw.shift.double().T)[0, 1])) < 0.05


def test_whole_loss_equals_the_obvious_one_in_value_and_gradient(theta: ConvNet) -> None:
    real, anchors = random(70, 3, SIZE, SIZE, seed=1), theta.features(random(4, 3, SIZE, SIZE, seed=2)).detach()
    synthetic = random(3, 3, SIZE, SIZE, seed=3).requires_grad_()
    target = gradient_target(theta, real, LABEL)
    value = sum(gradient_terms(theta, synthetic, LABEL, target, anchors, GAMMA))
    expected = obvious_gradient_terms(theta, real, synthetic, anchors)
    assert relative_error(value, expected) <= 1e-6
    (found,), (wanted,) = torch.autograd.grad(value, synthetic), torch.autograd.grad(expected, synthetic)
    assert relative_error(found, wanted) <= 1e-6


def test_whole_loss_gradient_equals_finite_differences(theta: ConvNet) -> None:
    real, anchors = random(9, 3, SIZE, SIZE, seed=1), theta.features(random(4, 3, SIZE, SIZE, seed=2)).detach()
    draw = DifferentiableAugmentation(
        torch.tensor([0.2]), torch.tensor([1.3]), torch.tensor([0.8]), torch.tensor([[1, -2]])
    )
    target = gradient_target(theta, real, LABEL)

    def loss(images: Tensor) -> Tensor:
        return sum(gradient_terms(theta, augment_differentiably(images, draw), LABEL, target, anchors, GAMMA))

    images = random(1, 3, SIZE, SIZE, seed=3).requires_grad_()
    (gradient,) = torch.autograd.grad(loss(images), images)
    for seed in range(5):
        direction = random(1, 3, SIZE, SIZE, seed=10 + seed) - 0.5
        step = 1e-6
        ahead, behind = loss(images.detach() + step * direction), loss(images.detach() - step * direction)
        slope = float((ahead - behind).detach()) / (2 * step)
        assert slope == pytest.approx(float((gradient * direction).sum()), rel=1e-4)


def test_feature_matching_equals_the_obvious_one_in_value_and_gradient(theta: ConvNet) -> None:
    """Coordinate by coordinate, with the real images one at a time."""
    real, anchors = random(20, 3, SIZE, SIZE, seed=1), theta.features(random(4, 3, SIZE, SIZE, seed=2)).detach()
    synthetic = random(3, 3, SIZE, SIZE, seed=3).requires_grad_()
    matching = MATCHING["features"]()
    terms = matching.terms(theta, synthetic, LABEL, matching.target(theta, real, LABEL), anchors, GAMMA)
    real_features = [theta.features(image[None])[0].detach() for image in real]
    own_features = [theta.features(image[None])[0] for image in synthetic]
    distance: Tensor = torch.zeros((), dtype=torch.float64)
    for coordinate in range(len(real_features[0])):
        real_mean = sum(float(feature[coordinate]) for feature in real_features) / 20
        distance = distance + (sum(feature[coordinate] for feature in own_features) / 3 - real_mean) ** 2
    relation = GAMMA * relationship_loss(torch.stack(real_features), torch.stack(own_features), anchors)
    assert relative_error(terms["feature_matching"], distance) <= 1e-6
    assert relative_error(terms["relationship"], relation) <= 1e-6
    (found,) = torch.autograd.grad(sum(terms.values()), synthetic)
    (wanted,) = torch.autograd.grad(distance + relation, synthetic)
    assert relative_error(found, wanted) <= 1e-6


def test_features_can_be_matched_in_a_learner() -> None:
    settings = {"queue": 8, "ready": 4, "interval": 2, "matching": "features"}
    learner = feed(small_learner(summarize=settings), toy_stream(2, 12))
    assert learner.rounds > 5
    assert learner.summarizer.last_losses.keys() == {"feature_matching", "relationship"}
    assert learner.memory.summary.any()


def test_no_past_class_means_no_relationship(theta: ConvNet) -> None:
    target = gradient_target(theta, random(4, 3, SIZE, SIZE), LABEL)
    _, relation = gradient_terms(theta, random(2, 3, SIZE, SIZE, seed=1), LABEL, target, None, GAMMA)
    assert float(relation) == 0


def test_real_images_are_forwarded_once(theta: ConvNet, monkeypatch: pytest.MonkeyPatch) -> None:
    forwarded = []
    plain = theta.features
    monkeypatch.setattr(theta, "features", lambda x: forwarded.append(len(x)) or plain(x))
    gradient_target(theta, random(70, 3, SIZE, SIZE), LABEL)
    assert sum(forwarded) == 70
