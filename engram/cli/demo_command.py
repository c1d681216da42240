"""`engram demo`: the embedded stream, learned with plain replay and with summaries at the same memory."""

from __future__ import annotations

import time
from pathlib import Path

from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.cli.run_command import execute
from engram.errors import InputError
from engram.experiment.demo import METHODS, demo_config
from engram.experiment.every import EVERY_MINUTE
from engram.experiment.jobs import Job


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="engram demo",
        usage="engram demo [options]",
        description="Learn the embedded handwritten digits, two new classes at a time, each image seen once, with a "
        "memory of ten images: plain replay (scr), the dynamic memory alone (scr+dynamic), and summaries (scr+ssd).",
    )
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each method")
    parser.add_argument("--out", type=Path | None, default=None, help="folder of the runs (default: under runs/)")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted demonstration in that folder")
    options = parser.parse_args(argv)
    if options.resume and options.out is None:
        raise InputError("--resume needs --out: the folder of the demonstration to go on with")
    out = options.out or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    jobs = [
        Job(demo_config(method, seed), out / method / f"seed-{seed}")
        for seed in range(options.seeds)
        for method in METHODS
    ]
    console = plain_console()
    console.print(
        "Ten handwritten digits arrive two classes at a time, every image once. The memory holds ten images:\n"
        "scr replays original images, scr+dynamic keeps one of each class, scr+ssd turns that one into a summary.\n",
    )
    again = f"engram demo --seeds {options.seeds} --out {out} --resume"
    code = execute(jobs, out, resume=options.resume, threads=None, checkpoint_every=EVERY_MINUTE, again=again)
    if code == 0:
        sheet = out / "scr+ssd" / "seed-0" / "memory" / "contact-sheet.png"
        console.print(f"First images above their summaries: {sheet}", soft_wrap=True)
    return code
