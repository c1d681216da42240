"""AVIF without what all files have in common."""

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, features

from engram import InputError
from engram.memory import avif
from engram.memory.codecs import parse_codec

SAVED = {"speed": 8, "subsampling": "4:2:0", "max_threads": 1}


def picture(width: int, height: int, seed: int, cell: int) -> Image.Image:
    cells = np.random.default_rng(seed).integers(0, 256, (height // cell + 1, width // cell + 1, 3))
    return Image.fromarray(np.kron(cells, np.ones((cell, cell, 1)))[:height, :width].astype(np.uint8))


def file_of(picture: Image.Image, **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, "avif", **SAVED | options)
    return file.getvalue()


def pixels_of(file: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(file), formats=["avif"]) as opened:
        return np.array(opened.convert("RGB"))


@given(st.integers(4, 300), st.integers(4, 300), st.integers(1, 99), st.integers(0, 1000), st.sampled_from([1, 8, 32]))
@settings(max_examples=40, deadline=None)
def test_a_picture_comes_back_pixel_by_pixel(width: int, height: int, quality: int, seed: int, cell: int) -> None:
    file = file_of(picture(width, height, seed, cell), quality=quality)
    record = avif.bare(file, width, height)
    assert np.array_equal(pixels_of(avif.whole(record, width, height)), pixels_of(file))
    assert len(record) <= len(file) - 285


@pytest.mark.parametrize(
    "options", [{"subsampling": "4:4:4"}, {"range": "limited"}, {"quality": 100}, {"codec": "aom", "speed": 0}]
)
def test_files_of_another_kind_come_back_too(options: dict[str, object]) -> None:
    file = file_of(picture(32, 32, 0, 8), **options)
    record = avif.bare(file, 32, 32)
    assert np.array_equal(pixels_of(avif.whole(record, 32, 32)), pixels_of(file))


@pytest.mark.parametrize("file", [b"", b"\0\0\0\x08mdat", b"\0" * 40, file_of(picture(32, 32, 0, 8))[:-5]])
def test_what_is_no_whole_picture_is_kept_as_it_is(file: bytes) -> None:
    assert avif.bare(file, 32, 32) == file


def test_a_picture_of_another_size_is_not_taken_apart() -> None:
    file = file_of(picture(32, 32, 0, 8))
    assert avif.bare(file, 32, 16) == file


def test_records_are_a_third_smaller_than_webp_at_the_same_error() -> None:
    rng = np.random.default_rng(0)
    smooth = [Image.fromarray(rng.integers(0, 256, (5, 5, 3)).astype(np.uint8)).resize((32, 32)) for _ in range(20)]
    images = torch.stack([torch.from_numpy(np.array(one)).permute(2, 0, 1) for one in smooth]) / 255
    found = {}
    for name in ("webp(50)", "avif(45)"):
        codec = parse_codec(name)
        records = codec.encode(images)
        error = (codec.decode(records, (3, 32, 32)) - images).square().mean()
        found[name] = (sum(map(len, records)) / len(records), float(error))
    assert found["avif(45)"][0] < 0.67 * found["webp(50)"][0]
    assert found["avif(45)"][1] < found["webp(50)"][1]


@pytest.mark.parametrize("channels", [1, 3])
def test_fewer_pixels_take_fewer_bytes(channels: int) -> None:
    x = torch.linspace(0, 1, 32).view(1, 1, 1, 32).expand(2, channels, 32, 32)
    full, small = parse_codec("avif(60)"), parse_codec("avif(60,16)")
    records = small.encode(x)
    assert sum(map(len, records)) < sum(map(len, full.encode(x)))
    assert float((small.decode(records, (channels, 32, 32)) - x).abs().mean()) < 0.03


def test_a_pillow_without_avif_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "check", lambda name: name != "avif")
    with pytest.raises(InputError, match=r"pip install 'pillow>=11\.3'"):
        parse_codec("avif(35)")
    assert parse_codec("jpeg(75)").name == "jpeg(75)"
