"""Data sets of other libraries, as far as they are known by what they can do, and pairs of arrays."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

from engram import InputError, Learner, RunConfig, run
from engram.streams import (
    DATASETS,
    DataError,
    class_incremental,
    from_arrays,
    load_dataset,
    register_dataset,
    to_dataset,
)
from tests.streams.imagefiles import picture, write

PIXELS = np.random.default_rng(0).integers(0, 256, (24, 3, 16, 16), dtype=np.uint8)
LABELS = np.arange(24) % 4


class Pictures(TorchDataset):
    """A torch data set of PIL images, as torchvision's are."""

    classes = ("ant", "bee", "cat", "dog")

    def __init__(self, size: int = 16) -> None:
        self.size = size

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        image = Image.fromarray(PIXELS[index].transpose(1, 2, 0))
        return image.resize((self.size, self.size), Image.Resampling.NEAREST), int(LABELS[index])


class ClassLabel:
    """Like the class of the same name in Hugging Face's library."""

    names = ("ant", "bee", "cat", "dog")


class Columns:
    """A data set that is read like Hugging Face's."""

    def __init__(self, columns: dict[str, list], features: dict[str, object]) -> None:
        self.columns, self.features = columns, features

    @property
    def column_names(self) -> list[str]:
        return list(self.columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index: int) -> dict[str, object]:
        return {name: column[index] for name, column in self.columns.items()}


def columns(**more: list) -> Columns:
    pictures = [Pictures()[index][0] for index in range(24)]
    return Columns({"img": pictures, "fine": LABELS.tolist(), **more}, {"fine": ClassLabel()})


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ((PIXELS, LABELS), tuple("0123")),
        ((torch.from_numpy(PIXELS), torch.from_numpy(LABELS)), tuple("0123")),
        (TensorDataset(torch.from_numpy(PIXELS), torch.from_numpy(LABELS)), tuple("0123")),
        (Pictures(), Pictures.classes),
        (columns(), ClassLabel.names),
        ({"train": columns()}, ClassLabel.names),
    ],
    ids=["arrays", "tensors", "TensorDataset", "pictures", "columns", "dictionary"],
)
def test_a_stream_is_made_of_what_others_hold(source: object, names: tuple[str, ...]) -> None:
    stream = class_incremental(source, seed=0, classes_per_task=2)
    data = stream.dataset
    assert data.class_names == names
    assert np.array_equal(data.train_x, PIXELS[:20]), "the last of the six images of each class are for testing"
    assert np.array_equal(data.train_y, LABELS[:20])
    assert np.array_equal(data.test_x, PIXELS[20:])
    assert sum(len(y) for _, y in stream) == 20
    assert np.array_equal(load_dataset(source).train_x, data.train_x)


def test_test_images_may_be_given(tmp_path: Path) -> None:
    stream = class_incremental(Pictures(), test=(PIXELS[:4], LABELS[:4]))
    assert (len(stream.dataset.train_y), len(stream.dataset.test_y)) == (24, 4)
    data = to_dataset({"train": columns(), "validation": (PIXELS[:8], LABELS[:8]), "unsupervised": None})
    assert (len(data.train_y), len(data.test_y)) == (24, 8)
    assert to_dataset(data) is data
    with pytest.raises(DataError, match="has test images already"):
        class_incremental(data, test=(PIXELS, LABELS))


def test_images_are_brought_to_one_size() -> None:
    assert to_dataset(Pictures(40), size=20).train_x.shape == (20, 3, 20, 20)
    assert to_dataset((PIXELS, LABELS), size=8).train_x.shape == (20, 3, 8, 8)
    with pytest.raises(DataError, match=r"only RGB images of uint8 can be resized"):
        to_dataset((PIXELS / 255, LABELS), size=8)


class Uneven(Pictures):
    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Pictures(16 + index)[index]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ((Pictures(), Pictures()), "Pictures and Pictures are not arrays .* with test="),
        ((PIXELS, np.eye(4)[LABELS]), r"labels have the shape \(20, 4\)|labels have the shape \(24, 4\)"),
        (iter([]), "list_iterator is not a data set: give a pair"),
        (Uneven(), r"images have the shapes \(3, 16, 16\) and \(3, 17, 17\): give all one size"),
        (columns(coarse=[0] * 24, label=[0] * 24), None),
        (Columns({"img": [], "a": [], "b": []}, {"a": ClassLabel(), "b": ClassLabel()}), "several of which may be"),
        (Columns({"img": [], "a": []}, {}), "columns img, a, none of which may be the label: use rename_column"),
        (Columns({"img": [], "label": [], "labels": []}, {}), "several of which may be the label"),
        ({"test": columns()}, "needs 'train', but it has test"),
        ([1, 2, 3], "an item of the data set is a int: each must be a pair"),
        (TensorDataset(torch.zeros(4, 16, 16, 3), torch.zeros(4)), r"an image has the shape \(16, 16, 3\)"),
        (TensorDataset(torch.zeros(0, 3, 16, 16), torch.zeros(0)), "is empty"),
        ((PIXELS.transpose(0, 2, 3, 1), LABELS), r"channels last: use x.transpose\(0, 3, 1, 2\)"),
    ],
)
def test_what_is_no_data_set_is_refused(source: object, message: str | None) -> None:
    if message is None:
        assert to_dataset(source).class_names == ClassLabel.names, "the typed column is the label"
    else:
        with pytest.raises(DataError, match=message):
            to_dataset(source)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((6, 16, 16, 3), r"train images have the shape \(6, 16, 16, 3\), with the channels last"),
        ((6, 16, 16, 1), "channels last"),
        ((6, 16, 16), r"give an array \(N,C,H,W\)"),
        ((6, 4, 16, 16), "have 4 channels"),
    ],
)
def test_arrays_must_have_the_channels_first(shape: tuple[int, ...], message: str) -> None:
    x = np.zeros(shape, dtype=np.uint8)
    with pytest.raises(DataError, match=message):
        from_arrays(x, [0] * 6, x, [0] * 6)


def test_a_run_learns_a_registered_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS, "mine", DATASETS["digits"])
    asked = []

    def source() -> Pictures:
        asked.append(1)
        return Pictures()

    register_dataset("mine", source)
    assert asked == []
    result = run(RunConfig("er", dataset="mine", memory_size=4, classes_per_task=2), tmp_path / "run")
    assert result.images_seen == 20
    assert json.loads((tmp_path / "run" / "classes.json").read_text()) == list(Pictures.classes)


@pytest.mark.parametrize(
    ("source", "labels"),
    [
        ((PIXELS, LABELS), [0, 1, 2, 3]),
        ((PIXELS, LABELS * 10 + 5), [5, 15, 25, 35]),
        ((PIXELS, np.array(["w", "x", "y", "z"])[LABELS]), ["w", "x", "y", "z"]),
        (Pictures(), list(Pictures.classes)),
        (columns(), list(ClassLabel.names)),
    ],
    ids=["numbers", "other numbers", "strings", "pictures", "columns"],
)
def test_streams_deliver_names_and_numbers_only_where_there_are_none(source: object, labels: list) -> None:
    stream = class_incremental(source, seed=0, classes_per_task=2)
    assert sorted({label for _, y in stream for label in y.tolist()}) == labels
    assert sorted({label for task in stream.tasks for label in stream.test(task)[1].tolist()}) == labels
    numbered = class_incremental(stream.dataset.numbered(), seed=0, classes_per_task=2)
    for (x, y), (same, number) in zip(stream, numbered, strict=True):
        assert np.array_equal(x, same), "names change nothing about the order"
        assert [labels[each] for each in number] == y.tolist()
    assert stream.digest() == numbered.digest()


def test_a_real_hugging_face_data_set_is_a_stream() -> None:
    hugging_face = pytest.importorskip("datasets")
    features = hugging_face.Features(
        {"img": hugging_face.Image(), "label": hugging_face.ClassLabel(names=list(Pictures.classes))}
    )
    pictures = [{"bytes": picture(index, 16, "PNG"), "path": None} for index in range(24)]
    source = hugging_face.Dataset.from_dict({"img": pictures, "label": LABELS.tolist()}, features=features)
    data = class_incremental(source, seed=0, classes_per_task=2).dataset
    assert data.class_names == Pictures.classes
    assert (len(data.train_y), len(data.test_y)) == (20, 4)
    first = np.asarray(Image.open(io.BytesIO(pictures[0]["bytes"]))).transpose(2, 0, 1)
    assert (data.train_x == first).all((1, 2, 3)).sum() == 1


def test_classes_with_the_same_name_are_told_apart_by_their_numbers(caplog: pytest.LogCaptureFixture) -> None:
    names = ClassLabel()
    names.names = ("crane", "bee", "crane", "dog")
    cranes = Columns(columns().columns, {"fine": names})
    assert to_dataset(cranes).labels == (0, 1, 2, 3)
    assert "two classes have the same name" in caplog.text


def test_a_learner_keeps_two_folders_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders were numbered each from 0, so that the second one's classes were taken for the first one's."""
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    learner = Learner("er", memory_size=8, net={"width": 8})
    for place, classes in (("photos", ("apple", "bicycle")), ("new-photos", ("bottle", "tiger"))):
        write(tmp_path / place, {f"{each}/{i}.png": picture(i, 16, "PNG") for each in classes for i in range(6)})
        for x, y in class_incremental(load_dataset(tmp_path / place, size=16)):
            learner.observe(x, y)
    assert sorted(learner.labels) == ["apple", "bicycle", "bottle", "tiger"]
    with pytest.raises(InputError, match="mix integers and strings"):
        learner.observe(PIXELS, LABELS)
