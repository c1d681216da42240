"""RandAugment's operations against obvious versions, and how rehearsal repeats them."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageOps

from engram import Learner
from engram.augmentations import RandAugment
from engram.augmentations import rand_augment as module
from engram.augmentations.rand_augment import OPERATIONS, to_eight_bits
from tests.helpers import feed, toy_images, toy_stream

ONE = torch.tensor([1.0])
CENTRE = torch.tensor([[0.5, 0.5]])


def image(size: int = 16, channels: int = 3) -> torch.Tensor:
    return to_eight_bits(torch.rand(1, channels, size, size, generator=torch.Generator().manual_seed(0)))


def apply(name: str, x: torch.Tensor, **settings: float) -> torch.Tensor:
    return getattr(module, name)(RandAugment(**settings), x, ONE, CENTRE)


def as_picture(x: torch.Tensor) -> Image.Image:
    return Image.fromarray((x[0].permute(1, 2, 0) * 255).round().to(torch.uint8).numpy())


def as_pixels(picture: Image.Image) -> torch.Tensor:
    return torch.tensor(np.array(picture)).permute(2, 0, 1) / 255


def moved_by(x: torch.Tensor, source) -> torch.Tensor:
    """Each pixel from where `source(row, column)` says, zero from outside."""
    out = torch.zeros_like(x)
    size = x.shape[-1]
    for row in range(size):
        for column in range(size):
            r, c = source(row, column)
            if 0 <= r < size and 0 <= c < size:
                out[0, :, row, column] = x[0, :, r, c]
    return out


def test_there_are_sixteen_operations_drawn_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(set(OPERATIONS)) == 16
    drawn, signs = [0] * 16, []

    def counting(index: int):
        def operation(settings: RandAugment, images: torch.Tensor, sign: torch.Tensor, places: torch.Tensor):
            drawn[index] += len(images)
            signs.extend(sign.tolist())
            return images

        return operation

    monkeypatch.setattr(module, "OPERATIONS", tuple(counting(index) for index in range(16)))
    RandAugment().augment(torch.zeros(4000, 1, 1, 1), torch.Generator().manual_seed(0))
    assert sum(drawn) == 4000
    assert 180 < min(drawn) <= max(drawn) < 330
    assert 1800 < signs.count(1.0) < 2200
    assert signs.count(-1.0) == 4000 - signs.count(1.0)


def test_pixel_operations() -> None:
    x = image()
    torch.testing.assert_close(apply("invert", x), 1 - x)
    assert set((apply("posterize", x) * 255).round().unique().tolist()) == {0, 128}
    solarized = torch.where(x * 255 >= 119.5, 1 - x, x)
    torch.testing.assert_close(apply("solarize", x), solarized)
    added = (x + 51.3 / 255).clamp(0, 1)
    torch.testing.assert_close(apply("solarize_add", x), torch.where(added >= 128 / 255, 1 - added, added))
    torch.testing.assert_close(apply("brightness", x), x * 0.94)
    stretched = apply("autocontrast", x * 0.5 + 0.2)
    torch.testing.assert_close(stretched.amin((2, 3)), torch.zeros(1, 3))
    torch.testing.assert_close(stretched.amax((2, 3)), torch.ones(1, 3))
    flat = torch.full((1, 3, 4, 4), 0.3)
    torch.testing.assert_close(apply("autocontrast", flat), flat)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("color", lambda picture: ImageEnhance.Color(picture).enhance(0.94)),
        ("contrast", lambda picture: ImageEnhance.Contrast(picture).enhance(0.94)),
        ("sharpness", lambda picture: ImageEnhance.Sharpness(picture).enhance(0.94)),
        ("equalize", ImageOps.equalize),
    ],
)
def test_operations_on_bytes_are_pillows(name: str, reference) -> None:
    """But for rounding."""
    x = image(32) * 0.6 + 0.1
    x = to_eight_bits(x)
    expected = as_pixels(reference(as_picture(x)))
    assert float((apply(name, x)[0] - expected).abs().max()) * 255 <= 2.001
    assert float((x[0] - expected).abs().max()) * 255 > 2


@pytest.mark.parametrize("name", ["color", "contrast", "sharpness"])
def test_factors_near_one_change_little_and_one_changes_nothing(name: str) -> None:
    x = image()
    assert 0 < float((apply(name, x) - x).abs().max()) < 0.1
    torch.testing.assert_close(apply(name, x, factor=1.0), x, atol=1e-5, rtol=0)


def test_geometry_moves_pixels_and_fills_with_zero() -> None:
    x = image()
    torch.testing.assert_close(
        apply("translate_x", x, translate=3.0, scale_translation=False), moved_by(x, lambda r, c: (r, c + 3))
    )
    torch.testing.assert_close(
        apply("translate_y", x, translate=3.0, scale_translation=False), moved_by(x, lambda r, c: (r + 3, c))
    )
    back = RandAugment(translate=3.0, scale_translation=False)
    torch.testing.assert_close(module.translate_x(back, x, -ONE, CENTRE), moved_by(x, lambda r, c: (r, c - 3)))
    torch.testing.assert_close(module.rotate(RandAugment(degrees=90.0), x, -ONE, CENTRE), x.rot90(-1, (2, 3)))
    quarter = apply("rotate", x, degrees=90.0)
    torch.testing.assert_close(quarter, x.rot90(1, (2, 3)))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_shears_keep_the_top_left_corner_as_pillows_do(sign: float) -> None:
    x = image(32)
    picture = as_picture(x)
    for name, matrix in (("shear_x", (1, sign * 0.14, 0, 0, 1, 0)), ("shear_y", (1, 0, 0, sign * 0.14, 1, 0))):
        expected = as_pixels(picture.transform(picture.size, Image.Transform.AFFINE, matrix))
        found = getattr(module, name)(RandAugment(), x, torch.tensor([sign]), CENTRE)
        torch.testing.assert_close(found[0], expected)
    slope = moved_by(x, lambda r, c: (r, math.floor(c + 0.5 + 0.14 * (r + 0.5))))
    torch.testing.assert_close(apply("shear_x", x), slope)


def test_published_translation_blanks_small_images_unless_scaled() -> None:
    x = image(32)
    assert not apply("translate_x", x, scale_translation=False).any()
    assert apply("translate_x", x, scale_translation=True).any()
    assert apply("translate_x", x).any()


def test_cutout_is_the_published_gray_square() -> None:
    """Drawn by Pillow: its first corner is moved to the image where it lies outside, then the square is as large as it
    was meant to be; the other edges cut it off."""
    x = image(32)
    places = torch.rand(200, 2, generator=torch.Generator().manual_seed(1))
    found = module.cutout(RandAugment(), x.expand(200, -1, -1, -1), torch.ones(200), places)
    for (row, column), cut in zip((places * 32).tolist(), found, strict=True):
        left, top = int(max(0.0, column - 18.7 / 2)), int(max(0.0, row - 18.7 / 2))
        picture = as_picture(x)
        square = (left, top, min(32, left + 18.7), min(32, top + 18.7))
        ImageDraw.Draw(picture).rectangle(square, (125, 123, 114))
        torch.testing.assert_close(cut, as_pixels(picture))


def test_cutout_covers_as_much_as_published() -> None:
    places = torch.rand(20_000, 2, generator=torch.Generator().manual_seed(0))
    cut = module.cutout(RandAugment(), torch.zeros(20_000, 1, 32, 32), torch.ones(20_000), places)
    assert float((cut > 0).float().mean()) == pytest.approx(0.305, abs=0.003)


def test_images_leave_as_eight_bit_values_and_draws_are_ours() -> None:
    x = torch.rand(40, 3, 16, 16) * 3 - 1
    state = torch.random.get_rng_state()
    first = RandAugment(n_ops=3).augment(x, torch.Generator().manual_seed(5))
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.testing.assert_close(first * 255, (first * 255).round(), atol=1e-3, rtol=0)
    assert torch.equal(RandAugment(n_ops=3).augment(x, torch.Generator().manual_seed(5)), first)
    assert RandAugment().augment(image(channels=1), torch.Generator()).shape == (1, 1, 16, 16)


def test_rehearsal_repeats_ten_times_with_new_replay_and_new_operations() -> None:
    mine = feed(Learner("rar", memory_size=20, net={"width": 8}), toy_stream(1, 6))
    seen = []
    plain = mine.scheme.loss
    mine.scheme.loss = lambda stream, replay, ctx: seen.append((stream.x, replay.x)) or plain(stream, replay, ctx)
    x = toy_images([0, 1], 9)
    mine.observe(x, [0, 1])
    assert len(seen) == 10
    assert len({stream.numpy().tobytes() for stream, _ in seen}) > 3
    assert len({replay.numpy().tobytes() for _, replay in seen}) == 10
    stored = {image.tobytes() for batch, _ in toy_stream(1, 6) for image in (batch / 255).astype("float32")}
    stored |= {image.tobytes() for image in (x / 255).astype("float32")}
    held = mine.memory.read(mine.memory.filled()).x
    assert all(image.numpy().tobytes() in stored for image in held)


def test_the_second_view_of_contrastive_rehearsal_is_made_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    from engram.schemes import contrastive

    learner = feed(Learner("rar-s", memory_size=8, net={"width": 8}, repeats=2), toy_stream(1, 2))
    monkeypatch.setattr(learner.augmentation, "augment", lambda images, generator: torch.full_like(images, 0.25))
    seen: list[torch.Tensor] = []
    original = contrastive.augment_view

    def spy(images: torch.Tensor, *rest: Any) -> torch.Tensor:
        seen.append(images)
        return original(images, *rest)

    monkeypatch.setattr(contrastive, "augment_view", spy)
    learner.observe(toy_images([0, 1], 5), [0, 1])
    assert len(seen) == 2
    assert all((images == 0.25).all() for images in seen)
