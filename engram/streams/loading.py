"""Data sets by name: where each is looked for, what it should hold and where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from engram.naming import suggest
from engram.streams.cifar import CIFAR10, CIFAR100, find_cifar, load_cifar
from engram.streams.class_folders import SIZE as FOLDER_SIZE
from engram.streams.class_folders import load_folder
from engram.streams.dataset import DataError, Dataset, data_folder
from engram.streams.digits import load_digits
from engram.streams.mini_imagenet import find_mini_imagenet, load_mini_imagenet
from engram.streams.tiny_imagenet import find_tiny_imagenet, load_tiny_imagenet


@dataclass(frozen=True)
class Download:
    """An archive at its publisher's."""

    url: str
    file: str
    md5: str
    bytes: int


@dataclass(frozen=True)
class KnownDataset:
    """A data set with a name."""

    description: str
    size: int
    classes: int
    train: int
    test: int
    layout: str
    find: Callable[[Path], Path | None]
    load: Callable[[Path, int, bool], Dataset]
    download: Download | None = None
    obtain: str = ""
    """What to do where there is no download."""


DATASETS: dict[str, KnownDataset] = {
    "digits": KnownDataset(
        description="scikit-learn's handwritten digits (UCI), the embedded stream",
        size=16,
        classes=10,
        train=1433,
        test=364,
        layout="ships with scikit-learn",
        find=lambda root: Path("scikit-learn"),
        load=lambda place, size, skip_damaged: load_digits(size),
    ),
    "cifar10": KnownDataset(
        description="CIFAR-10 (Krizhevsky, 2009)",
        size=32,
        classes=10,
        train=50_000,
        test=10_000,
        layout="cifar-10-python.tar.gz, or the folder cifar-10-batches-py/",
        find=partial(find_cifar, CIFAR10),
        load=lambda place, size, skip_damaged: load_cifar(CIFAR10, place, size),
        download=Download(
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "cifar-10-python.tar.gz",
            "c58f30108f718f92721af3b95e74349a",
            170_498_071,
        ),
    ),
    "cifar100": KnownDataset(
        description="CIFAR-100 (Krizhevsky, 2009)",
        size=32,
        classes=100,
        train=50_000,
        test=10_000,
        layout="cifar-100-python.tar.gz, or the folder cifar-100-python/",
        find=partial(find_cifar, CIFAR100),
        load=lambda place, size, skip_damaged: load_cifar(CIFAR100, place, size),
        download=Download(
            "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
            "cifar-100-python.tar.gz",
            "eb9058c3a382ffc7106e4002c42a8d85",
            169_001_437,
        ),
    ),
    "mini-imagenet": KnownDataset(
        description="Mini-ImageNet (Vinyals et al., 2016), its three splits joined",
        size=84,
        classes=100,
        train=50_000,
        test=10_000,
        layout="mini-imagenet.zip or mini-imagenet/ with images/ and train.csv, val.csv, test.csv, or with one folder "
        "a class; or mini-imagenet-cache-train.pkl, -val.pkl and -test.pkl",
        find=find_mini_imagenet,
        load=load_mini_imagenet,
        obtain="Mini-ImageNet has no official download: make it from ImageNet (ILSVRC 2012) with the csv files of Ravi "
        "and Larochelle (2017), or obtain one of the layouts above from somebody who may pass it on",
    ),
    "tiny-imagenet": KnownDataset(
        description="Tiny-ImageNet-200 (Stanford CS231N), its validation images as test set",
        size=64,
        classes=200,
        train=100_000,
        test=10_000,
        layout="tiny-imagenet-200.zip, or the folder tiny-imagenet-200/",
        find=find_tiny_imagenet,
        load=load_tiny_imagenet,
        download=Download(
            "https://cs231n.stanford.edu/tiny-imagenet-200.zip",
            "tiny-imagenet-200.zip",
            "90528d7ca1a48142e341f4ef8d21d0de",
            248_100_043,
        ),
    ),
}


def known_dataset(name: str) -> KnownDataset:
    if name not in DATASETS:
        raise DataError(f"unknown data set, and no folder, {name!r}{suggest(name, list(DATASETS))}")
    return DATASETS[name]


def load_dataset(name: str, size: int | None = None, skip_damaged: bool = False, root: Path | None = None) -> Dataset:
    """The data set of that name from `root` (default: the data folder), or the folder of that path with one folder of
    images a class; `size` pixels a side, its own (a folder's: 32) if not given."""
    if size is not None and size < 1:
        raise DataError(f"images of {size} pixels a side: give a positive size")
    if name not in DATASETS and Path(name).is_dir():
        return load_folder(Path(name), size or FOLDER_SIZE, skip_damaged)
    known, root = known_dataset(name), root or data_folder()
    place = known.find(root)
    if place is None:
        raise DataError(f"{name} was not found in {root}: {how_to_obtain(name, root)}")
    return known.load(place, size or known.size, skip_damaged)


def how_to_obtain(name: str, root: Path) -> str:
    """What to put where."""
    known = known_dataset(name)
    if known.download is None:
        return f"{known.obtain}. Put it into {root}, or set ENGRAM_DATA to the folder that holds it"
    return (
        f"`engram data get {name}` downloads it; or put {known.download.file} (from {known.download.url}) or the "
        f"folder it unpacks to into {root}, or set ENGRAM_DATA to the folder that holds it"
    )
