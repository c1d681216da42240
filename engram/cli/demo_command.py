"""`engram demo`: learn the embedded stream with plain replay and with summaries, with the same memory size."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any

from engram.base.errors import InputError
from engram.base.settings import Count, schema_of
from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.cli.run_command import execute, seed_folders
from engram.experiment.demo import METHODS, demo_config, what_was_seen
from engram.experiment.jobs import Job
from engram.experiment.result import read_result
from engram.options import ComputeOptions


def main(argv: list[str]) -> int:
    """Run `engram demo` and return the exit code."""
    parser = Parser(
        prog="engram demo",
        usage="engram demo [options]",
        description="Learn the embedded handwritten digits, two new classes at a time, each image seen once, with a "
        "memory of ten images: plain replay (scr), the dynamic memory alone (scr+dynamic), and summaries (scr+ssd).",
    )
    parser.add_argument("--seeds", type=Count | None, default=None, help="number of seeds of each method (default: 3)")
    parser.add_argument("--out", type=Path | None, default=None, help="folder of the runs (default: under runs/)")
    parser.add_argument("--resume", action="store_true", help="continue the interrupted demo in the folder --out")
    parser.add_options("computing", ComputeOptions)
    options = parser.parse_args(argv)
    if options.resume and options.out is None:
        raise InputError("--resume needs --out: the folder of the demonstration to go on with")
    out = options.out or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    there = seed_folders(out / METHODS[0]) if options.resume else {}
    seeds = options.seeds or len(there) or 3
    computing: Any = {name: value for name, value in vars(options).items() if name in schema_of(ComputeOptions)}
    jobs = [
        Job(demo_config(method, seed).replace(**computing), out / method / f"seed-{seed}", options.resume)
        for seed in range(seeds)
        for method in METHODS
    ]
    console = plain_console()
    console.print(
        "Ten handwritten digits arrive two classes at a time, every image once. The memory holds ten images:\n"
        "scr replays original images, scr+dynamic keeps one of each class, scr+ssd turns that one into a summary.\n",
    )
    code = execute(jobs, out, again=shlex.join(["engram", "demo", "--resume", "--out", str(out)]))
    if code == 0:
        console.print(f"\n{what_was_seen(_ends(out, seeds))}", soft_wrap=True)
        console.print("Ten images are a toy. What suits your own limit in bytes, and your own photos:\n")
        console.print(
            "engram recommend --bytes 300KB --classes 100\nengram learn FOLDER_OF_PHOTOS --into my-learner",
            soft_wrap=True,
        )
        sheet = out / "scr+ssd" / "seed-0" / "memory" / "stream-sheet.png"
        console.print(f"\nHow images of the stream became summaries: {sheet}", soft_wrap=True)
    return code


def _ends(out: Path, seeds: int) -> dict[str, list[float]]:
    """Return the end accuracies of each method, by seed."""
    return {
        method: [
            read_result(out / method / f"seed-{seed}" / "result.json").average_end_accuracy for seed in range(seeds)
        ]
        for method in METHODS
    }
