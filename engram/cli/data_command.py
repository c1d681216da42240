"""`engram data list|info|check|get|cache`: list, describe, check and download data sets, and show decoded images."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.cli.tables import new_table
from engram.streams.cache_entry import cache_entries, cache_folder, clear_cache, pixels_intact
from engram.streams.dataset import DataError, Dataset, data_folder
from engram.streams.download import download
from engram.streams.layout import listed
from engram.streams.loading import DATASETS, KnownDataset, dataset_in, how_to_obtain, known_dataset, load_dataset

ACTIONS = ("list", "info", "check", "get", "cache")
SHOWN_CLASSES = 12
"""Number of class names that `check` prints."""


def main(argv: list[str]) -> int:
    """Run `engram data` and return the exit code."""
    parser = Parser(
        prog="engram data",
        usage="engram data list | info NAME | check NAME | get NAME | cache [--clear]",
        description="list: show every data set and where it was found. info: show what a data set should hold, and "
        "in which layouts. check: read all of it. get: download it from its publisher. cache: show the decoded images "
        "that are kept, and remove them with --clear.",
    )
    parser.add_argument("action", choices=ACTIONS, help="action to run")
    parser.add_argument(
        "name", nargs="?", type=str | None, default=None, help="name of a data set, or a folder of images"
    )
    parser.add_argument("--skip_damaged", action="store_true", help="check: report damaged images and continue")
    parser.add_argument("--clear", action="store_true", help="cache: remove the decoded images")
    options = parser.parse_args(argv)
    if options.name is None and options.action not in ("list", "cache"):
        parser.error(f"{options.action} needs the name of a data set: {', '.join(DATASETS)}")
    console = plain_console()
    try:
        return _run(options, console)
    except KeyboardInterrupt:
        console.print("Stopped. Run the same command again to start anew; a download is resumed.", soft_wrap=True)
        return 130


def _run(options: Namespace, console: Console) -> int:
    """Run the action that was asked for, and return the exit code."""
    if options.action == "list":
        return _list(console)
    if options.action == "cache":
        return _cache(options.clear, console)
    if options.action == "info":
        return _info(options.name, console)
    if options.action == "check":
        return _check(options.name, options.skip_damaged, console)
    return _get(options.name, console)


def _list(console: Console) -> int:
    table = new_table(("data set",), ("classes", "images", "pixels", "found"))
    for name, known in DATASETS.items():
        place = known.find(data_folder())
        images = f"{known.train:,} + {known.test:,}" if known.train else "–"
        table.add_row(name, str(known.classes or "–"), images, str(known.size or "–"), place.name if place else "–")
    console.print(table)
    console.print(f"Data folder: {data_folder()} (set ENGRAM_DATA to use another)", soft_wrap=True)
    return 0


def _cache(clear: bool, console: Console) -> int:
    """Print the decoded images that are kept, or remove them."""
    if clear:
        console.print(f"Removed {clear_cache() / 1e6:,.0f} MB from {cache_folder()}", soft_wrap=True)
        return 0
    entries = cache_entries()
    for entry in entries:
        console.print(f"{entry.bytes / 1e6:8,.0f} MB  {entry.path.name}  from {entry.source}", soft_wrap=True)
    total = sum(entry.bytes for entry in entries)
    console.print(f"{total / 1e6:8,.0f} MB in {cache_folder()} (set ENGRAM_CACHE to use another)", soft_wrap=True)
    return 0


def _info(name: str, console: Console) -> int:
    path = Path(name).expanduser()
    if name not in DATASETS and (path.is_dir() or dataset_in(path)):
        return _check(name, False, console)
    known = known_dataset(name)
    place = known.find(data_folder())
    complete = f"{known.classes} classes, {known.train:,} + {known.test:,} images, {known.size} pixels per side"
    lines = [
        f"{name}: {known.description}",
        f"complete: {complete if known.classes else 'not known in advance'}",
        f"layouts: {known.layout}",
        f"found in: {place}" if place else f"not found in {data_folder()}: {how_to_obtain(name, data_folder())}",
    ]
    for line in lines:
        console.print(line, soft_wrap=True)
    return _check(name, False, console) if place else 0


def _check(name: str, skip_damaged: bool, console: Console) -> int:
    """Read the whole data set and print what it holds; for a known data set, also print what is missing."""
    data = load_dataset(name, skip_damaged=skip_damaged)
    if not pixels_intact(data):
        data = load_dataset(name, skip_damaged=skip_damaged)
    per_class = np.bincount(data.train_y, minlength=len(data.class_names))
    console.print(
        f"{name} holds {len(data.class_names)} classes, {len(data.train_y):,} training images ({per_class.min()} to "
        f"{per_class.max()} per class), {len(data.test_y):,} test images, {data.train_x.shape[-1]} pixels per side",
        soft_wrap=True,
    )
    console.print(f"Classes: {listed(data.class_names, SHOWN_CLASSES)}", soft_wrap=True)
    for words in data.left_out:
        console.print(f"Left out: {words}", soft_wrap=True)
    itself = None if name in DATASETS else dataset_in(Path(name).expanduser())
    known = itself[0] if itself else DATASETS.get(name)
    if known and known.classes:
        console.print(_completeness(data, known), soft_wrap=True)
    return 0


def _completeness(data: Dataset, known: KnownDataset) -> str:
    """Return in words how much of a known data set is there."""
    found = (len(data.class_names), len(data.train_y), len(data.test_y))
    if found == (known.classes, known.train, known.test):
        uneven = known.train % known.classes == 0 and len(set(np.bincount(data.train_y))) > 1
        return "Not as published: its classes differ in size." if uneven else "Complete."
    share = 100 * found[1] / known.train
    return (
        f"Not complete: it has {found[0]} of {known.classes} classes, {share:.0f} % of {known.train:,} training "
        f"images, {found[2]:,} of {known.test:,} test images."
    )


def _get(name: str, console: Console) -> int:
    known, root = known_dataset(name), data_folder()
    if place := known.find(root):
        console.print(f"{name} is already there: {place}", soft_wrap=True)
        return 0
    if known.download is None:
        raise DataError(how_to_obtain(name, root))
    target = root / known.download.file
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    try:
        with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
            bar = progress.add_task(known.download.file, total=known.download.bytes)
            download(
                known.download.url,
                target,
                known.download.md5,
                known.download.bytes,
                lambda done, total: progress.update(bar, completed=done, total=total),
            )
    except DataError as error:
        raise DataError(
            f"{error}. To install it by hand, put {known.download.file} from {known.download.url} into {root}"
        ) from error
    console.print(f"{name} is in {target}", soft_wrap=True)
    return 0
