"""`engram data list|info|check|get`: list, describe, check and download data sets."""

from __future__ import annotations

import logging

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.streams.dataset import DataError, data_folder
from engram.streams.download import download
from engram.streams.loading import DATASETS, how_to_obtain, known_dataset, load_dataset

ACTIONS = ("list", "info", "check", "get")


def main(argv: list[str]) -> int:
    """Run `engram data` and return the exit code."""
    parser = Parser(
        prog="engram data",
        usage="engram data list | info NAME | check NAME [--skip-damaged] | get NAME",
        description="list: show every data set and where it was found. info: show what a data set should hold, and "
        "in which layouts. check: read all of it. get: download it from its publisher.",
    )
    parser.add_argument("action", choices=ACTIONS, help="action to run")
    parser.add_argument(
        "name", nargs="?", type=str | None, default=None, help="name of a data set, or a folder to check"
    )
    parser.add_argument("--skip_damaged", action="store_true", help="check: report damaged images and continue")
    options = parser.parse_args(argv)
    console = plain_console()
    if options.action == "list":
        return _list(console)
    if options.name is None:
        parser.error(f"{options.action} needs the name of a data set: {', '.join(DATASETS)}")
    if options.action == "info":
        return _info(options.name, console)
    if options.action == "check":
        return _check(options.name, options.skip_damaged, console)
    return _get(options.name, console)


def _list(console: Console) -> int:
    table = Table("data set", "classes", "images", "pixels", "found", box=SIMPLE, pad_edge=False)
    for name, known in DATASETS.items():
        place = known.find(data_folder())
        images = f"{known.train:,} + {known.test:,}"
        table.add_row(name, str(known.classes), images, str(known.size), place.name if place else "–")
    console.print(table)
    console.print(f"Data folder: {data_folder()} (set ENGRAM_DATA to use another)", soft_wrap=True)
    return 0


def _info(name: str, console: Console) -> int:
    known = known_dataset(name)
    place = known.find(data_folder())
    lines = [
        f"{name}: {known.description}",
        f"complete: {known.classes} classes, {known.train:,} + {known.test:,} images, {known.size} pixels per side",
        f"layouts: {known.layout}",
        f"found in: {place}" if place else f"not found in {data_folder()}: {how_to_obtain(name, data_folder())}",
    ]
    for line in lines:
        console.print(line, soft_wrap=True)
    return _check(name, False, console) if place else 0


def _check(name: str, skip_damaged: bool, console: Console) -> int:
    """Read the whole data set and print what it holds; for a known data set, also print what is missing."""
    logging.basicConfig(format="%(message)s")
    data = load_dataset(name, skip_damaged=skip_damaged)
    per_class = np.bincount(data.train_y, minlength=len(data.class_names))
    console.print(
        f"{name} holds {len(data.class_names)} classes, {len(data.train_y):,} training images ({per_class.min()} to "
        f"{per_class.max()} per class), {len(data.test_y):,} test images, {data.train_x.shape[-1]} pixels per side",
        soft_wrap=True,
    )
    known = DATASETS.get(name)
    if known and (len(data.train_y), len(data.test_y)) != (known.train, known.test):
        share = 100 * len(data.train_y) / known.train
        console.print(
            f"Not complete: it has {share:.0f} % of {known.train:,} training images, "
            f"{len(data.test_y):,} of {known.test:,} test images.",
            soft_wrap=True,
        )
    elif known:
        console.print("Complete.")
    return 0


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
