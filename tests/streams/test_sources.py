"""Batches from wherever images are: folders, arrays, data sets of other libraries, loaders and loops."""

import io
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from engram import Learner
from engram.streams import DataError, ImageReading, image_files, load_dataset, read_images, to_batches
from engram.streams import images as images_module
from engram.streams.images import decode
from tests.streams.imagefiles import picture, write

X = np.arange(5 * 3 * 16 * 16, dtype=np.float32).reshape(5, 3, 16, 16) / 4000
Y = ["a", "b", "a", "c", "b"]


def as_file(image: Image.Image, kind: str = "PNG", **facts: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **facts)
    return file.getvalue()


def halves(mode: str = "RGB") -> Image.Image:
    """An image of 40×20 pixels: its left half is white, its right half is black."""
    image = Image.new("L", (40, 20))
    image.paste(255, (0, 0, 20, 20))
    return image.convert(mode)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    names = [f"{kind}/{index}.png" for kind in ("cat", "dog") for index in range(6)]
    return write(tmp_path / "pets", {name: picture(index, 16, "PNG") for index, name in enumerate(names)})


def drained(source: Any, **reading: Any) -> tuple[np.ndarray[Any, Any], list[Any]]:
    found = list(to_batches(source, ImageReading(**reading)))
    return np.concatenate([np.asarray(x) for x, _ in found]), [label for _, y in found for label in y]


def test_a_folder_gives_every_image_once_under_the_name_of_its_class(pets: Path) -> None:
    batches = to_batches(pets, ImageReading(batch=5, size=16))
    found = list(batches)
    assert batches.count == len(found) == 3
    assert [len(y) for _, y in found] == [5, 5, 2]
    assert Counter(label for _, y in found for label in y) == {"cat": 6, "dog": 6}
    whole = {decode((pets / name).read_bytes(), 16, name).tobytes(): name for name in map(str, image_files(pets))}
    for x, y in found:
        assert [Path(whole[image.tobytes()]).parent.name for image in x] == y


def test_the_seed_draws_the_order_and_batches_can_be_taken_from_any_on(pets: Path) -> None:
    first, again, other = (to_batches(pets, ImageReading(batch=5, seed=seed)) for seed in (0, 0, 1))
    orders = [[label for _, y in batches for label in y] for batches in (first, again, other)]
    assert orders[0] == orders[1] != orders[2]
    assert first.digest == again.digest != other.digest
    ((x, y),) = first.start_at(2)
    expected = list(first)[2]
    assert np.array_equal(x, expected[0])
    assert y == expected[1]


def test_a_damaged_file_stops_or_is_left_out(pets: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(pets, {"cat/0.png": b"no image"})
    with pytest.raises(DataError, match=r"cat/0\.png is damaged"):
        drained(pets)
    _, labels = drained(pets, skip_damaged=True)
    assert Counter(labels) == {"cat": 5, "dog": 6}
    assert "left out" in caplog.text


class Named(TorchDataset[Any]):
    classes = ("ant", "bee", "cow")

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return X[index], "abc".index(Y[index])


def loops() -> Iterator[tuple[Any, Any]]:
    yield X[:2], Y[:2]
    yield X[2:], Y[2:]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ((X, Y), "abc"),
        ((torch.from_numpy(X), np.array(Y)), "abc"),
        (TensorDataset(torch.from_numpy(X), torch.tensor(["abc".index(label) for label in Y])), (0, 1, 2)),
        (Named(), Named.classes),
        (torch.utils.data.Subset(Named(), range(5)), Named.classes),
        (DataLoader(Named(), batch_size=2, shuffle=True), Named.classes),
        (loops(), "abc"),
        ([(X[:3], Y[:3]), (X[3:], Y[3:])], "abc"),
    ],
    ids=["arrays", "tensors", "tensor data set", "named", "subset", "loader", "generator", "list of batches"],
)
def test_every_source_gives_each_image_with_its_label(source: Any, names: Any) -> None:
    x, labels = drained(source, batch=2)
    assert len(x) == 5
    for image, label in zip(x, labels, strict=True):
        (index,) = (number for number in range(5) if np.array_equal(X[number], image))
        assert label == names["abc".index(Y[index])]


def test_columns_of_tables_are_labels_too() -> None:
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    column = pandas.Series(Y, index=[9, 8, 7, 6, 5])
    expected = drained((X, Y))[1]
    assert drained((X, column))[1] == drained((X, pyarrow.array(Y)))[1] == expected


@pytest.mark.parametrize("streaming", [False, True])
def test_a_hugging_face_data_set_gives_the_names_of_its_classes(streaming: bool) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["ant", "bee"])})
    images = [Image.new("RGB", (20 + index, 20), (50 * index, 0, 0)) for index in range(4)]
    data = datasets.Dataset.from_dict({"image": images, "label": [0, 1, 0, 1]}, features=features)
    x, labels = drained(data.to_iterable_dataset() if streaming else data, size=16, batch=3)
    assert x.shape == (4, 3, 16, 16)
    assert sorted(zip(x[:, 0, 0, 0].tolist(), labels, strict=True)) == [
        (0, "ant"),
        (50, "bee"),
        (100, "ant"),
        (150, "bee"),
    ]


def test_what_is_no_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="int is no source of images"):
        to_batches(3, ImageReading())
    with pytest.raises(DataError, match="is not there"):
        to_batches(tmp_path / "nowhere", ImageReading())
    with pytest.raises(DataError, match="5 images but 4 labels"):
        to_batches((X, Y[:4]), ImageReading())
    with pytest.raises(DataError, match="batch is 0"):
        to_batches((X, Y), ImageReading(batch=0))


@pytest.mark.parametrize(("orientation", "white"), [(1, "left"), (3, "right"), (6, "top"), (8, "bottom")])
def test_photos_are_turned_upright(orientation: int, white: str, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "photo.jpg"
    path.write_bytes(as_file(halves(), "JPEG", exif=exif, quality=95))
    pixels = read_images([path], ImageReading(size=20, fit="stretch"))[0, 0].astype(int)
    sides = {"left": pixels[:, :8], "right": pixels[:, -8:], "top": pixels[:8], "bottom": pixels[-8:]}
    assert max(sides, key=lambda side: sides[side].mean()) == white
    assert sides[white].min() > 200


def test_images_that_are_not_square_become_so_by_the_rule_that_is_asked_for() -> None:
    content = as_file(halves().resize((40, 20)))
    crop, pad, stretch = (decode(content, 20, "x.png", fit)[0] for fit in ("crop", "pad", "stretch"))  # type: ignore[arg-type]
    assert np.array_equal(crop, np.asarray(halves().crop((10, 0, 30, 20)).convert("L")))
    assert pad[:4].max() == pad[-4:].max() == 0, "bars above and below"
    assert pad[6:14, :8].min() == 255, "the whole image between them"
    assert stretch[:, :8].min() == 255, "the whole image, narrower"
    assert stretch[:, 12:].max() == 0


def test_fits_are_kept_apart_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    photos = write(tmp_path / "p", {f"{each}/{index}.png": as_file(halves()) for each in "ab" for index in range(3)})
    crop, pad = (load_dataset(photos, size=20, fit=fit).train_x for fit in ("crop", "pad"))  # type: ignore[arg-type]
    assert not np.array_equal(crop, pad)


@pytest.mark.parametrize(
    ("image", "kind"),
    [
        (halves("CMYK"), "JPEG"),
        (halves("RGBA"), "PNG"),
        (halves("LA"), "PNG"),
        (halves("P"), "PNG"),
        (halves("1"), "PNG"),
        (Image.fromarray(np.asarray(halves("L")).astype(np.uint16) * 257), "PNG"),
    ],
    ids=["cmyk", "alpha", "gray alpha", "palette", "bits", "16 bit"],
)
def test_every_kind_of_pixels_becomes_rgb(image: Image.Image, kind: str) -> None:
    pixels = decode(as_file(image, kind), 20, f"x.{kind.lower()}", "stretch").astype(int)
    assert pixels.shape == (3, 20, 20)
    assert pixels[:, :, :8].min() > 240
    assert pixels[:, :, 12:].max() < 15


def test_heic_is_named_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "IMG_1.HEIC"
    path.write_bytes(b"\0\0\0\x18ftypheic" + bytes(100))
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    images_module._formats.cache_clear()
    try:
        with pytest.raises(DataError, match=r"IMG_1\.HEIC is a HEIC image.*pip install pillow-heif"):
            read_images([path], ImageReading(size=16))
    finally:
        images_module._formats.cache_clear()


def test_heic_is_read_where_pillow_heif_is_installed(tmp_path: Path) -> None:
    heif = pytest.importorskip("pillow_heif")
    images_module._formats.cache_clear()
    shown = np.zeros((32, 32, 3), np.uint8)
    shown[:, 16:] = (200, 40, 40)
    heif.from_pillow(Image.fromarray(shown)).save(tmp_path / "IMG_2.heic", quality=90)
    (found,) = read_images([tmp_path / "IMG_2.heic"], ImageReading(size=32))
    assert np.abs(found.astype(int) - shown.transpose(2, 0, 1)).mean() < 4


def test_joined_data_sets_must_number_the_same_classes() -> None:
    class Others(Named):
        classes = ("bottle", "tiger", "zebra")

    _, labels = drained(ConcatDataset([Named(), Named()]))
    assert sorted(labels) == sorted([Named.classes["abc".index(label)] for label in Y] * 2)
    for source in (ConcatDataset([Named(), Others()]), DataLoader(ConcatDataset([Others(), Named()]), batch_size=2)):
        with pytest.raises(DataError, match="have different classes, so the same index means another class"):
            drained(source)


def test_the_first_of_synonyms_is_the_name() -> None:
    class Synonyms(Named):
        classes = (("ant", "emmet"), ("bee",), ("cow", "ox"))  # type: ignore[assignment]

    assert set(drained(Synonyms())[1]) == set(Named.classes)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ((X, "cat"), "the labels are one str: give a sequence"),
        ((X, {1: "a"}.values()), "the labels are one dict_values: give a sequence"),
        ((X, np.eye(5)), "a label has 5 values: give one integer or string"),
    ],
)
def test_labels_that_are_no_sequence_of_single_values_are_refused(source: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        drained(source)


def test_a_folder_may_be_asked_about_by_its_path(pets: Path) -> None:
    learner = Learner("er", memory_size=4, net={"width": 8})
    learner.learn(pets, size=16)
    assert len(learner.predict(pets)) == 12
    assert learner.predict([pets / "cat", pets / "dog" / "0.png"]).tolist() == [
        *learner.predict(pets / "cat"),
        *learner.predict(pets / "dog" / "0.png"),
    ]
