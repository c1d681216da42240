"""The augmented view: ranges, independence of images, and the parts against obvious versions."""

import colorsys
import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from engram import Learner
from engram.augmentations import UNCHANGED, RandomView, ViewAugmentation, augment_view
from engram.augmentations.view import crop_and_resize, draw_crops, multiplicative_jitter

NOTHING = ViewAugmentation(crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), flip=0, jitter=0, gray=0)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(count: int = 6, channels: int = 3, size: int = 32) -> torch.Tensor:
    return torch.rand(count, channels, size, size, generator=generator(7))


def test_nothing_asked_for_changes_nothing() -> None:
    torch.testing.assert_close(augment_view(images(), NOTHING, generator()), images())


def test_aligned_crop_equals_slicing_and_resizing() -> None:
    x = images(3)
    boxes = torch.tensor([[4.0, 2, 20, 9], [0, 0, 32, 32], [31, 31, 1, 1]])
    flips = torch.tensor([False, True, False])
    views = crop_and_resize(x, boxes, flips, "aligned")
    for view, image, (left, top, width, height), flip in zip(
        x.new_tensor(views.tolist()), x, boxes.int().tolist(), flips, strict=True
    ):
        piece = image[None, :, top : top + height, left : left + width]
        expected = F.interpolate(piece, size=(32, 32), mode="bilinear", align_corners=True)[0]
        torch.testing.assert_close(view, expected.flip(-1) if flip else expected, atol=1e-5, rtol=1e-4)


def published_crop(image: torch.Tensor, size: int, left: int, top: int, width: int, height: int) -> torch.Tensor:
    """Pixel by pixel: output d reads the input at left·W/(W−1) + (d+½)·W/size·(width−1)/(W−1) − ½, zeros beyond."""
    side = image.shape[-1]
    out = torch.zeros(len(image), size, size)
    for row in range(size):
        y = top * side / (side - 1) + (row + 0.5) * side / size * (height - 1) / (side - 1) - 0.5
        for column in range(size):
            x = left * side / (side - 1) + (column + 0.5) * side / size * (width - 1) / (side - 1) - 0.5
            for j in (math.floor(y), math.floor(y) + 1):
                for i in (math.floor(x), math.floor(x) + 1):
                    if 0 <= j < side and 0 <= i < side:
                        out[:, row, column] += (1 - abs(y - j)) * (1 - abs(x - i)) * image[:, j, i]
    return out


@pytest.mark.parametrize("size", [16, 12])
def test_published_crop_equals_a_slow_version(size: int) -> None:
    x = images(3, size=16)
    boxes = torch.tensor([[4.0, 2, 11, 9], [0, 5, 15, 11], [7, 0, 9, 14]])
    flips = torch.tensor([False, True, False])
    views = crop_and_resize(x, boxes, flips, size=size)
    for view, image, box, flip in zip(views, x, boxes.int().tolist(), flips, strict=True):
        expected = published_crop(image, size, *box)
        torch.testing.assert_close(view, expected.flip(-1) if flip else expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("share", "size"), [(1.0, 32), (0.75, 24), (0.1, 8)])
def test_views_have_the_share_of_pixels_asked_for(share: float, size: int) -> None:
    augmentation = RandomView(side=share)
    assert augmentation.augment(images(), generator()).shape == (6, 3, size, size)
    assert augmentation.output_size(32) == size


def test_published_crops_have_truncated_sides_smaller_than_the_image() -> None:
    """The mean area is 0.515 of the image; rounding the sides and allowing the whole image gives 0.552."""
    boxes = draw_crops(50_000, 32, 32, ViewAugmentation(), generator())
    assert boxes[:, 2:].max() == 31
    assert float((boxes[:, 2] * boxes[:, 3]).mean()) / 32**2 == pytest.approx(0.515, abs=0.003)
    aligned = draw_crops(50_000, 32, 32, ViewAugmentation(crop="aligned"), generator())
    assert aligned[:, 2:].max() == 32
    assert float((aligned[:, 2] * aligned[:, 3]).mean()) / 32**2 == pytest.approx(0.552, abs=0.003)


def test_crops_lie_inside_and_span_the_asked_areas_and_ratios() -> None:
    left, top, width, height = draw_crops(5000, 32, 32, ViewAugmentation(crop="aligned"), generator()).unbind(1)
    assert left.min() == 0
    assert top.min() == 0
    assert (left + width).max() == 32
    assert (top + height).max() == 32
    share = width * height / 32**2
    assert 0.17 < share.min() < 0.23
    assert share.max() > 0.95
    assert 0.65 < (width / height).min() < 0.8
    assert 1.25 < (width / height).max() < 1.5
    assert torch.equal(width, width.round())


def test_each_image_has_its_own_draw_and_values_stay_in_range() -> None:
    same = images(1).expand(32, -1, -1, -1)
    views = augment_view(same, ViewAugmentation(), generator())
    assert len({view.numpy().tobytes() for view in views}) == 32
    assert views.min() >= 0
    assert views.max() <= 1


def test_draws_come_from_the_given_generator_alone() -> None:
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    first = augment_view(images(), ViewAugmentation(), generator(3))
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(augment_view(images(), ViewAugmentation(), generator(3)), first)


def test_hue_turns_and_saturation_scales() -> None:
    """Red turned by a third of a circle at most is green or blue; saturation moves colors towards their value."""
    still = {"brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "hue": 0.0}
    fixed = {"crop_scale": (1.0, 1.0), "crop_ratio": (1.0, 1.0), "flip": 0, "jitter": 1, "gray": 0}
    red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1).expand(3000, 3, 4, 4)
    turned = augment_view(red, ViewAugmentation(**fixed, **still | {"hue": 1 / 3}), generator())[:, :, 0, 0]
    assert turned[:, 1].max() > 0.95
    assert turned[:, 2].max() > 0.95
    assert (turned.max(1).values > 0.99).all()
    pale = torch.tensor([0.8, 0.4, 0.4]).view(1, 3, 1, 1).expand(3000, 3, 4, 4)
    scaled = augment_view(pale, ViewAugmentation(**fixed, **still | {"saturation": 0.4}), generator())[:, :, 0, 0]
    torch.testing.assert_close(scaled[:, 0], torch.full((3000,), 0.8), atol=1e-4, rtol=0)
    assert scaled[:, 1].min() == pytest.approx(0.8 * (1 - 0.5 * 1.4), abs=0.01)
    assert scaled[:, 1].max() == pytest.approx(0.8 * (1 - 0.5 * 0.6), abs=0.01)


@pytest.mark.parametrize(("probability", "share"), [("flip", 0.5), ("jitter", 0.8), ("gray", 0.2)])
def test_each_image_is_changed_with_its_probability(probability: str, share: float) -> None:
    fixed = {"crop_scale": (1.0, 1.0), "crop_ratio": (1.0, 1.0)}
    settings = ViewAugmentation(**fixed | {"flip": 0, "jitter": 0, "gray": 0} | {probability: share})
    one = images(1, size=8).expand(4000, -1, -1, -1)
    changed = (augment_view(one, settings, generator()) - one).abs().amax((1, 2, 3)) > 1e-4
    assert float(changed.float().mean()) == pytest.approx(share, abs=0.03)


def test_values_outside_the_unit_interval_are_clamped_after_the_jitter_not_before() -> None:
    bright = torch.full((2000, 1, 4, 4), 1.3)
    off = {"brightness": 0.4, "contrast": 0.0, "saturation": 0.0, "hue": 0.0}
    settings = ViewAugmentation(crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), flip=0, jitter=1, gray=0, **off)
    views = augment_view(bright, settings, generator())
    assert float(views.min()) == pytest.approx(0.9, abs=0.01)


def test_grey_images_are_jittered_without_colour() -> None:
    views = augment_view(images(channels=1), ViewAugmentation(), generator())
    assert views.shape == (6, 1, 32, 32)
    assert views.isfinite().all()


def test_grey_probability_one_removes_all_colour() -> None:
    settings = ViewAugmentation(crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), flip=0, jitter=0, gray=1)
    views = augment_view(images(), settings, generator())
    torch.testing.assert_close(views[:, 0], views[:, 1])
    expected = (images() * torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1)
    torch.testing.assert_close(views[:, 0], expected)


@pytest.mark.parametrize(("setting", "low", "high"), [("brightness", 0.1, 0.9), ("contrast", 0.3, 0.7)])
def test_jitter_spans_its_range(setting: str, low: float, high: float) -> None:
    """Mid-gray images: brightness adds up to ±0.4, contrast multiplies by 0.6 to 1.4."""
    off = {"brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "hue": 0.0} | {setting: 0.4}
    settings = ViewAugmentation(crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), flip=0, jitter=1, gray=0, **off)
    views = augment_view(torch.full((2000, 3, 4, 4), 0.5), settings, generator())
    values = views[:, 0, 0, 0]
    assert values.min() == pytest.approx(low, abs=0.01)
    assert values.max() == pytest.approx(high, abs=0.01)


def multiplied_pixel(rgb: tuple[float, ...], mean_gray: float, operation: str, change: float) -> tuple[float, ...]:
    """One pixel under one operation of torchvision's jitter."""
    gray = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]
    if operation == "hue":
        hue, saturation, value = colorsys.rgb_to_hsv(*rgb)
        return colorsys.hsv_to_rgb((hue + change) % 1.0, saturation, value)
    center = {"brightness": 0.0, "contrast": mean_gray, "saturation": gray}[operation]
    return tuple(min(1.0, max(0.0, (1 + change) * channel + (0 - change) * center)) for channel in rgb)


@pytest.mark.parametrize("operation", ["brightness", "contrast", "saturation", "hue"])
def test_multiplicative_jitter_equals_a_slow_version(operation: str) -> None:
    x, changes = images(4, size=4), torch.tensor([-0.4, -0.1, 0.05, 0.4])
    none = torch.zeros(4)
    position = ["brightness", "contrast", "saturation", "hue"].index(operation)
    given = [changes if index == position else none for index in range(4)]
    found = multiplicative_jitter(*given)[position](x)
    for image, view, change in zip(x, found, changes.tolist(), strict=True):
        mean_gray = float((image * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(0).mean())
        for row in range(4):
            for column in range(4):
                expected = multiplied_pixel(tuple(image[:, row, column].tolist()), mean_gray, operation, change)
                assert view[:, row, column].tolist() == pytest.approx(expected, abs=1e-4)


def test_multiplicative_jitter_moves_pixels_less_than_the_additive_one() -> None:
    """A smooth image, as photographs are: brightness multiplies dark pixels by little."""
    x = torch.linspace(0, 0.8, 32).view(1, 1, 1, 32).expand(500, 3, 32, 32)
    whole = {"crop_scale": (1.0, 1.0), "crop_ratio": (1.0, 1.0), "crop": "aligned", "flip": 0, "jitter": 1, "gray": 0}
    moved = {
        kind: float((augment_view(x, ViewAugmentation(**whole, jitter_kind=kind), generator()) - x).abs().mean())
        for kind in ("additive", "multiplicative")
    }
    assert moved["multiplicative"] < 0.65 * moved["additive"]


def test_the_second_view_of_dvc_is_jittered_multiplicatively() -> None:
    assert Learner("dvc").scheme.augment.jitter_kind == "multiplicative"
    assert Learner("scr").scheme.augment.jitter_kind == "additive"
    gray = augment_view(images(channels=1), Learner("dvc").scheme.augment, generator())
    assert gray.shape == (6, 1, 32, 32)


def test_jitter_takes_its_four_operations_in_an_order_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    from kornia import enhance

    order: list[str] = []
    for name in ("adjust_saturation", "adjust_hue"):
        monkeypatch.setattr(enhance, name, lambda views, _, name=name: order.append(name) or views)
    for seed in range(12):
        augment_view(images(), ViewAugmentation(), generator(seed))
    pairs = set(zip(order[::2], order[1::2], strict=True))
    assert pairs == {("adjust_saturation", "adjust_hue"), ("adjust_hue", "adjust_saturation")}


def test_a_view_that_changes_nothing_is_the_image_and_draws_nothing() -> None:
    given, drawn = images(3, channels=5, size=1), generator()
    before = drawn.get_state()
    assert augment_view(given, UNCHANGED, drawn) is given
    assert torch.equal(drawn.get_state(), before)


def test_without_a_crop_images_are_only_mirrored() -> None:
    given = images(64, channels=8, size=4)
    views = augment_view(given, replace(UNCHANGED, flip=0.5), generator())
    kept, mirrored = ((views == each).flatten(1).all(1) for each in (given, given.flip(3)))
    assert bool((kept ^ mirrored).all())
    assert 16 < int(mirrored.sum()) < 48
