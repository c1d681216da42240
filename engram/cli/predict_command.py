"""`engram predict LEARNER IMAGE|FOLDER...`: name the classes of images with a saved learner."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from engram.base.errors import InputError
from engram.base.escaping import for_csv, for_terminal
from engram.base.settings import Count
from engram.cli.answering import open_to_answer
from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.cli.tables import new_table
from engram.deployment import Predictor
from engram.learner import Learner
from engram.streams import DataError, image_files, read_images

BATCH = 100
"""Number of images that are answered together."""


def main(argv: list[str]) -> int:
    """Run `engram predict` and return the exit code."""
    parser = Parser(
        prog="engram predict",
        usage="engram predict LEARNER IMAGE|FOLDER... [options]",
        description="Print the likeliest classes of each image, with their scores between 0 and 1.",
    )
    parser.add_argument("learner", type=Path, help="folder of a saved learner, or of a run")
    parser.add_argument("images", type=Path, nargs="+", help="image files, or folders with images in them")
    parser.add_argument("--top", type=Count, default=1, help="number of classes to name for each image")
    parser.add_argument("--json", action="store_true", help="print one JSON object per image")
    parser.add_argument("--csv", action="store_true", help="print comma-separated values")
    parser.add_argument("--skip_damaged", action="store_true", help="leave out images that cannot be read")
    options = parser.parse_args(argv)
    if options.json and options.csv:
        raise InputError("--json and --csv are both given: choose one")
    learner = open_to_answer(options.learner)
    files = [file for place in options.images for file in image_files(place)]
    if not files:
        raise DataError(f"there is no image in {', '.join(map(str, options.images))}: name images, or folders of them")
    answers = predictions(learner, files, options.top, options.skip_damaged)
    _print(answers, "json" if options.json else "csv" if options.csv else "table")
    return 0


def predictions(
    learner: Learner | Predictor, files: list[Path], top: int, skip_damaged: bool = False
) -> Iterable[dict[str, Any]]:
    """Yield for each image file its path and its likeliest classes, best first, each with its score.

    Args:
        learner: the learner that answers.
        files: the image files.
        top: number of classes to name.
        skip_damaged: leave out files that cannot be read, instead of stopping.
    """
    for start in range(0, len(files), BATCH):
        read = {}
        for file in files[start : start + BATCH]:
            try:
                read[file] = read_images([file], learner.reading)
            except DataError as error:
                if not skip_damaged:
                    raise
                print(for_terminal(f"left out: {error}"), file=sys.stderr)
        if not read:
            continue
        for file, shares in zip(read, learner.predict_proba(np.concatenate(list(read.values()))), strict=True):
            best = sorted(zip(shares.tolist(), learner.labels, strict=False), key=lambda each: -each[0])[:top]
            yield {"image": str(file), "classes": [{"label": label, "score": round(share, 6)} for share, label in best]}


def _print(answers: Iterable[dict[str, Any]], form: str) -> None:
    if form == "json":
        for answer in answers:
            print(json.dumps(answer))
        return
    rows = [
        (answer["image"], rank, str(found["label"]), found["score"])
        for answer in answers
        for rank, found in enumerate(answer["classes"], 1)
    ]
    if form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(("image", "rank", "label", "score"))
        writer.writerows((for_csv(image), rank, for_csv(label), score) for image, rank, label, score in rows)
        return
    table = new_table(["image", "class"], ["score"])
    for image, rank, label, score in rows:
        table.add_row(image if rank == 1 else "", label, f"{score:.3f}")
    plain_console().print(table)
