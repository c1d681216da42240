"""The known data sets: how to find, load and download each of them by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from engram.base.naming import suggest
from engram.streams.cifar import CIFAR10, CIFAR100, CifarFiles, find_cifar, load_cifar
from engram.streams.class_folders import SIZE as FOLDER_SIZE
from engram.streams.class_folders import load_folder
from engram.streams.dataset import DataError, Dataset, data_folder
from engram.streams.digits import load_digits
from engram.streams.mini_imagenet import find_mini_imagenet, load_mini_imagenet
from engram.streams.tiny_imagenet import find_tiny_imagenet, load_tiny_imagenet


@dataclass(frozen=True)
class Download:
    """An archive that can be downloaded from the publisher of a data set.

    Args:
        url: address of the archive.
        file: file name to save it as.
        md5: checksum of the archive.
        bytes: size of the archive.
    """

    url: str
    file: str
    md5: str
    bytes: int


@dataclass(frozen=True)
class KnownDataset:
    """A data set that can be loaded by its name.

    Args:
        description: what it is, in one line.
        size: pixels per side of its images.
        classes: number of classes.
        train: number of training images.
        test: number of test images.
        layout: files or folders in which it can be given.
        find: returns its path in a data folder, or None if it is not there.
        load: loads it from a path, given the pixels per side and whether to skip damaged images.
        download: the archive of its publisher, if there is one.
        obtain: what to do if there is no download.
    """

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


def _cifar(kind: CifarFiles, classes: int, folder: str, md5: str, size: int) -> KnownDataset:
    """Return the entry of CIFAR-10 or CIFAR-100; `md5` and `size` are those of its archive."""
    archive = f"cifar-{classes}-python.tar.gz"
    return KnownDataset(
        description=f"CIFAR-{classes} (Krizhevsky, 2009)",
        size=32,
        classes=classes,
        train=50_000,
        test=10_000,
        layout=f"{archive}, or the folder {folder}/",
        find=partial(find_cifar, kind),
        load=lambda place, size, skip_damaged: load_cifar(kind, place, size),
        download=Download(f"https://www.cs.toronto.edu/~kriz/{archive}", archive, md5, size),
    )


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
    "cifar10": _cifar(CIFAR10, 10, "cifar-10-batches-py", "c58f30108f718f92721af3b95e74349a", 170_498_071),
    "cifar100": _cifar(CIFAR100, 100, "cifar-100-python", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),
    "mini-imagenet": KnownDataset(
        description="Mini-ImageNet (Vinyals et al., 2016), its three splits joined",
        size=84,
        classes=100,
        train=50_000,
        test=10_000,
        layout="mini-imagenet.zip or mini-imagenet/ with images/ and train.csv, val.csv, test.csv, or with one folder "
        "per class; or mini-imagenet-cache-train.pkl, -val.pkl and -test.pkl",
        find=find_mini_imagenet,
        load=load_mini_imagenet,
        obtain="Mini-ImageNet has no official download: make it from ImageNet (ILSVRC 2012) with the csv files of Ravi "
        "and Larochelle (2017), or get a copy from somebody who is allowed to share it, in one of the layouts that "
        "`engram data info mini-imagenet` lists",
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
    """Return the known data set of that name."""
    if name not in DATASETS:
        raise DataError(f"{name!r} is neither a known data set nor a folder{suggest(name, list(DATASETS))}")
    return DATASETS[name]


def load_dataset(name: str, size: int | None = None, skip_damaged: bool = False, root: Path | None = None) -> Dataset:
    """Load a data set.

    Args:
        name: name of a known data set, or path of a folder with one folder of images per class.
        size: pixels per side of the loaded images; if not given, the data set's own, or 32 for a folder.
        skip_damaged: leave out image files that cannot be read, instead of stopping.
        root: folder in which known data sets are looked for; `data_folder()` if not given.
    """
    if size is not None and size < 1:
        raise DataError(f"images cannot have {size} pixels per side: give at least 1")
    if name not in DATASETS and Path(name).is_dir():
        return load_folder(Path(name), size or FOLDER_SIZE, skip_damaged)
    known, root = known_dataset(name), root or data_folder()
    place = known.find(root)
    if place is None:
        raise DataError(f"{name} was not found in {root}: {how_to_obtain(name, root)}")
    return known.load(place, size or known.size, skip_damaged)


def how_to_obtain(name: str, root: Path) -> str:
    """Return in words how to get a data set and put it into the folder `root`."""
    known = known_dataset(name)
    if known.download is None:
        return f"{known.obtain}. Put it into {root}, or set ENGRAM_DATA to the folder that holds it"
    return (
        f"`engram data get {name}` downloads it; or put {known.download.file} (from {known.download.url}) or the "
        f"folder it unpacks to into {root}, or set ENGRAM_DATA to the folder that holds it"
    )
