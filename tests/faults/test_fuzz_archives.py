"""Altered archives and pickles of data sets by the thousand: they are read, or refused with a `DataError`."""

import gzip
import io
import pickle
import random
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engram.streams import DataError, Dataset
from engram.streams.cifar import CIFAR100, load_cifar
from engram.streams.mini_imagenet import load_mini_imagenet
from engram.streams.tiny_imagenet import load_tiny_imagenet
from tests.faults.soak import amount
from tests.faults.test_fuzz_files import damaged
from tests.streams.imagefiles import tiny_files

Files = dict[str, bytes]


def as_zip(files: Files, dice: random.Random) -> bytes:
    """Return a zip of the files. Half of the time they are stored as they are, so that damage reaches their content."""
    packed = io.BytesIO()
    kind = dice.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(packed, "w", kind) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return damaged(packed.getvalue(), dice) if dice.random() < 0.7 else packed.getvalue()


def as_tar(files: Files, dice: random.Random) -> bytes:
    """Return a tar of the files, with damage before or after it is compressed."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    kind = dice.random()
    plain = damaged(packed.getvalue(), dice) if kind < 0.4 else packed.getvalue()
    compressed = gzip.compress(plain, 1)
    return damaged(compressed, dice) if kind > 0.7 else compressed


def changed(files: Files, dice: random.Random) -> Files:
    """Return the files with one of them damaged, left out, under another name, or with the content of another."""
    name, other = dice.choice(list(files)), dice.choice(list(files))
    odd = dice.choice(["../" + name, "/" + name, name.upper(), "a/" * 70 + name, name + "\x1b[2J"])
    return dice.choice(
        [
            lambda: files | {name: damaged(files[name], dice)},
            lambda: {each: content for each, content in files.items() if each != name},
            lambda: {odd if each == name else each: content for each, content in files.items()},
            lambda: files | {name: files[other]},
        ]
    )()


def cifar_files() -> Files:
    def part(count: int) -> bytes:
        pixels = np.arange(count * 3072).astype(np.uint8).reshape(count, 3072)
        return pickle.dumps({b"data": pixels, CIFAR100.labels.encode(): [0, 1] * (count // 2)}, protocol=3)

    names = pickle.dumps({CIFAR100.label_names: ["apple", "bear"]})
    contents = {name: part(4) for name in (*CIFAR100.train, CIFAR100.test)} | {CIFAR100.meta: names}
    return {f"{CIFAR100.folder}/{name}": content for name, content in contents.items()}


def mini_pickles() -> Files:
    """The three pickles of Mini-ImageNet, with two classes each."""
    made = {}
    for number, name in enumerate(("train", "val", "test")):
        pixels = np.arange(4 * 84 * 84 * 3).astype(np.uint8).reshape(4, 84, 84, 3)
        classes = {f"n{number}{label:07d}": [2 * label, 2 * label + 1] for label in range(2)}
        made[f"mini-imagenet-cache-{name}.pkl"] = pickle.dumps({"image_data": pixels, "class_dict": classes})
    return made


def read_cifar(files: Files, dice: random.Random, root: Path) -> Dataset:
    path = root / CIFAR100.archive
    path.write_bytes(as_tar(files, dice))
    return load_cifar(CIFAR100, path)


def read_tiny(files: Files, dice: random.Random, root: Path) -> Dataset:
    path = root / "tiny-imagenet-200.zip"
    path.write_bytes(as_zip(files, dice))
    return load_tiny_imagenet(path, 16)


def read_mini(files: Files, dice: random.Random, root: Path) -> Dataset:
    for path in root.glob("*.pkl"):
        path.unlink()
    for name, content in files.items():
        target = root / Path(name).name.replace("\x1b", "")
        target.write_bytes(damaged(content, dice) if dice.random() < 0.2 else content)
    return load_mini_imagenet(root, 16)


CASES: dict[str, tuple[Callable[[], Files], Callable[[Files, random.Random, Path], Dataset]]] = {
    "tar of cifar": (cifar_files, read_cifar),
    "zip of tiny-imagenet": (lambda: tiny_files(2, 2, 1), read_tiny),
    "pickles of mini-imagenet": (mini_pickles, read_mini),
}


@pytest.mark.parametrize("name", list(CASES))
def test_altered_archives_are_read_or_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    (root := tmp_path / "data").mkdir()
    make, read = CASES[name]
    honest, dice = make(), random.Random(name)
    messages: list[str] = []
    total = amount(60, 1000)
    for _ in range(total):
        files = changed(honest, dice) if dice.random() < 0.6 else honest
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # zipfile and Pillow warn of what they then refuse
                data = read(files, dice, root)
        except DataError as error:
            messages.append(str(error))
        else:
            assert len(data.train_x) == len(data.train_y) > 0
            assert data.train_y.max() < len(data.class_names)
    assert total / 5 < len(messages) < total
    assert all(str(root) in message for message in messages), "each names the file"
    assert {path.name for path in tmp_path.iterdir()} <= {"data", "cache"}, "nothing is written outside"
