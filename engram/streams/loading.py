"""The known data sets: how to find, load and download each of them by its name, and how to add one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from inspect import isfunction
from pathlib import Path
from typing import Any

from engram.base.naming import suggest
from engram.streams.adapters import to_dataset
from engram.streams.cifar import CIFAR10, CIFAR100, CifarFiles, find_cifar, load_cifar
from engram.streams.class_folders import SIZE as FOLDER_SIZE
from engram.streams.class_folders import load_folder
from engram.streams.dataset import DataError, Dataset, data_folder
from engram.streams.digits import load_digits
from engram.streams.images import Fit
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
        size: pixels per side of its images; 0 if it is not known before it is loaded.
        classes: number of classes; 0 if it is not known.
        train: number of training images; 0 if it is not known.
        test: number of test images; 0 if it is not known.
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
        layout="mini-imagenet.zip or mini-imagenet/ with the images and train.csv, val.csv, test.csv, or with one "
        "folder per class, also in train/, val/ and test/; or mini-imagenet-cache-train.pkl, -val.pkl and -test.pkl",
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
        layout="tiny-imagenet-200.zip, or the folder tiny-imagenet-200/ with train/<class>/ and val/, which has class "
        "folders or val_annotations.txt",
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


def register_dataset(name: str, source: Any, test: Any = None, description: str = "") -> None:
    """Make images and labels known as a data set, so that runs and the command line can use it by its name.

    Args:
        name: name to use.
        source: images and labels in any form that `to_dataset` takes, or a function without arguments that returns
            them and is called when the data set is first used.
        test: test images in any of these forms; if None, those of `source`, or the last sixth of each class.
        description: what it is, in one line.
    """

    @cache
    def load(size: int) -> Dataset:
        given, tested = (each() if isfunction(each) else each for each in (source, test))
        return to_dataset(given, tested, size or None, name)

    DATASETS[name] = KnownDataset(
        description=description or "added by register_dataset",
        size=0,
        classes=0,
        train=0,
        test=0,
        layout="given in Python",
        find=lambda root: Path("given in Python"),
        load=lambda place, size, skip_damaged: load(size),
    )


def load_dataset(
    name: Any, size: int | None = None, skip_damaged: bool = False, root: Path | None = None, fit: Fit = "crop"
) -> Dataset:
    """Load a data set.

    Args:
        name: name of a known data set, or path of a folder with one folder of images per class, or of a known data
            set; or images and labels in another form, as `to_dataset` takes them.
        size: pixels per side of the loaded images; if not given, the data set's own, or 32 for a folder.
        skip_damaged: leave out image files that cannot be read, instead of stopping.
        root: folder in which known data sets are looked for; `data_folder()` if not given.
        fit: how images of a folder that are not square become so: "crop" takes the square in the middle, "pad" adds
            black bars, "stretch" changes the proportions.
    """
    if size is not None and size < 1:
        raise DataError(f"images cannot have {size} pixels per side: give at least 1")
    if not isinstance(name, str | Path):
        return to_dataset(name, size=size)
    name = str(name)
    if name not in DATASETS:
        path = Path(name).expanduser()
        if itself := dataset_in(path):
            return itself[0].load(itself[1], size or itself[0].size, skip_damaged)
        if path.is_dir():
            return load_folder(path, size or FOLDER_SIZE, skip_damaged, fit)
    known, root = known_dataset(name), root or data_folder()
    place = known.find(root)
    if place is None:
        raise DataError(f"{name} was not found in {root}: {how_to_obtain(name, root)}")
    return known.load(place, size or known.size, skip_damaged)


def dataset_in(path: Path) -> tuple[KnownDataset, Path] | None:
    """Return the known data set that a folder or archive is, and its path; None if it is the user's own.

    The folder may be the only one in another, as archives are often unpacked.
    """
    here = path.resolve()
    inside = [each for each in here.iterdir() if not each.name.startswith(".")] if here.is_dir() else []
    places = [here, *(each for each in inside if len(inside) == 1 and each.is_dir())]
    return next(((known, at) for at in places for known in DATASETS.values() if known.find(at) == at), None)


def how_to_obtain(name: str, root: Path) -> str:
    """Return in words how to get a data set and put it into the folder `root`."""
    known = known_dataset(name)
    if known.download is None:
        return f"{known.obtain}. Put it into {root}, or set ENGRAM_DATA to the folder that holds it"
    return (
        f"`engram data get {name}` downloads it; or put {known.download.file} (from {known.download.url}) or the "
        f"folder it unpacks to into {root}, or set ENGRAM_DATA to the folder that holds it"
    )
