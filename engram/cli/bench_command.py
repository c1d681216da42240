"""`engram bench`: measure how fast this machine learns, compared with its own limit."""

from __future__ import annotations

import json
import os

from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.cli.progress import RunProgress
from engram.cli.tables import new_table
from engram.experiment.bench import bench


def main(argv: list[str]) -> int:
    """Run `engram bench` and return the exit code."""
    parser = Parser(
        prog="engram bench",
        usage="engram bench [--threads N [N ...]] [--json]",
        description="Measure ratios: a training step to the machine's matrix multiply, and summarizing and everything "
        "else to the training step. This takes about four minutes; run nothing else at the same time.",
    )
    both = sorted({1, min(2, os.cpu_count() or 1)})
    parser.add_argument("--threads", type=int, nargs="+", default=both, help="numbers of threads (default: 1 and 2)")
    parser.add_argument("--repetitions", type=int, default=5, help="number of repetitions that medians are taken over")
    parser.add_argument("--json", action="store_true", help="print JSON, with all measured seconds")
    options = parser.parse_args(argv)
    quiet = plain_console(quiet=True)
    progress = RunProgress(["bench"], quiet)
    progress(0, {"event": "start", "done": 0, "total": 10**9})
    measured = bench(options.threads, options.repetitions, lambda: progress(0, {"event": "batch"}))
    if options.json:
        print(json.dumps(measured, indent=1))
        return 0
    table = new_table(("what", "measured", "target", ""))
    for target in measured["targets"]:
        limit = f"{'at most' if target['at_most'] else 'at least'} {target['limit']:g} {target['unit']}"
        value = f"{target['value']:.{1 if target['unit'] == '%' else 2}f} {target['unit']}"
        table.add_row(target["name"], value, limit, "met" if target["met"] else "not met")
    console = plain_console()
    console.print(table)
    console.print(f"processor: {' '.join(measured['cpu_flags']) or 'no flags known'}")
    for count, one in measured["threads"].items():
        console.print(
            f"{count} thread(s): matrix multiply {one['matmul_gflops']:.0f} GFLOP/s; scr step "
            f"{one['step']['seconds']:.2f} s for {one['step']['gflop']:.0f} GFLOP",
        )
    return 0
