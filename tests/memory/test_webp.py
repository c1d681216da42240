"""WebP without its constant bytes, and pictures stored with fewer pixels."""

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from engram import InputError
from engram.memory import webp
from engram.memory.codecs import parse_codec


def picture(side: int, seed: int, coarse: bool) -> Image.Image:
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 256, (side // 8 + 1, side // 8 + 1, 3)) if coarse else rng.integers(0, 256, (side, side, 3))
    pixels = np.kron(cells, np.ones((8, 8, 1)))[:side, :side] if coarse else cells
    return Image.fromarray(pixels.astype(np.uint8))


@given(st.integers(4, 90), st.integers(1, 100), st.integers(0, 1000), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_file_comes_back_byte_by_byte(side: int, quality: int, seed: int, coarse: bool) -> None:
    file = io.BytesIO()
    picture(side, seed, coarse).save(file, "webp", quality=quality, method=4)
    record = webp.bare(file.getvalue(), side, side)
    assert webp.whole(record, side, side) == file.getvalue()
    assert len(record) <= len(file.getvalue()) - 27


def test_files_of_another_kind_are_kept_whole() -> None:
    file = io.BytesIO()
    picture(16, 0, True).save(file, "webp", lossless=True)
    assert webp.bare(file.getvalue(), 16, 16) == file.getvalue()
    assert webp.whole(file.getvalue(), 16, 16) == file.getvalue()


def test_memories_of_earlier_versions_hold_whole_files() -> None:
    codec, file = parse_codec("webp(50)"), io.BytesIO()
    image = torch.tensor(np.array(picture(32, 1, True))).permute(2, 0, 1) / 255
    picture(32, 1, True).save(file, "webp", quality=50, method=4)
    old = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
    (new,) = codec.encode(image[None])
    assert len(new) <= len(old) - 27
    assert torch.equal(codec.decode([old], (3, 32, 32)), codec.decode([new], (3, 32, 32)))


@pytest.mark.parametrize("channels", [1, 3])
def test_fewer_pixels_take_fewer_bytes_and_come_back_in_full_size(channels: int) -> None:
    x = torch.linspace(0, 1, 32).view(1, 1, 1, 32).expand(2, channels, 32, 32)
    full, small = parse_codec("webp(80)"), parse_codec("webp(80,16)")
    assert small.name == "webp(80,16)"
    assert parse_codec("jpeg(80, 16)").name == "jpeg(80,16)"
    records = small.encode(x)
    assert all(len(a) < len(b) for a, b in zip(records, full.encode(x), strict=True))
    assert float((small.decode(records, (channels, 32, 32)) - x).abs().mean()) < 0.03


def test_images_that_are_small_already_keep_their_pixels() -> None:
    x = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    assert torch.equal(parse_codec("webp(50,32)").encode(x)[0], parse_codec("webp(50)").encode(x)[0])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("webp(50,2)", "at least 4 pixels"),
        ("webp(0,16)", "between 1 and 100"),
        ("uint8(50,16)", "uint8 has no quality"),
        ("webp(50,16,3)", "unknown codec"),
        ("webp(50,99999)", "unknown codec"),
    ],
)
def test_names_that_mean_nothing_are_refused(name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_codec(name)
