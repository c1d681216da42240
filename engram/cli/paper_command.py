"""`engram paper list` and `engram paper NAME --scale S`: list, run and show the paper's tables and figures."""

from __future__ import annotations

import functools
import os
import platform
import secrets
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from engram.base.errors import InputError
from engram.base.settings import Count
from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.cli.stopping import stop_on_signal
from engram.cli.tables import new_table
from engram.experiment.engines import LocalEngine, RayEngine
from engram.experiment.jobs import cores
from engram.experiment.run import Interrupted
from engram.experiment.scheduler import Happened, run_jobs
from engram.options import DeviceName
from engram.paper.catalogue import EXPERIMENTS, Experiment, find_experiment
from engram.paper.grid import Cell, departures_of, finished_below
from engram.paper.outcome import PaperTable, gather
from engram.paper.plan import costs_of, jobs_left, select_cells
from engram.paper.plots import draw
from engram.paper.scales import SCALES, Scale
from engram.persistence.files import replace_file, write_json
from engram.persistence.lock import waiting_lock


def main(argv: list[str]) -> int:
    """Run `engram paper` and return the exit code."""
    parser = Parser(
        prog="engram paper",
        usage="engram paper list | engram paper NAME --scale smoke|small|full [options]",
        description="Run or continue a table or figure of the paper, and show the results so far. Finished runs are "
        "never run again, and tables share them.",
    )
    parser.add_argument("name", type=str, help="name of a table or figure, or list to list them all")
    parser.add_argument(
        "--scale", type=Literal["smoke", "small", "full"], default="small", help="size of the experiments"
    )
    parser.add_argument(
        "--seeds", type=Count | None, default=None, help="number of seeds of each cell (default: the scale's)"
    )
    parser.add_argument(
        "--only", type=str, default="", help="run only this row, column, or 'row column'; a part of a name also works"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/paper"), help="folder of the runs and tables")
    parser.add_argument(
        "--workers", type=Count | None, default=None, help="number of processes (default: one per core)"
    )
    parser.add_argument("--ray", type=str | None, default=None, help="address of a Ray cluster, auto, or local")
    parser.add_argument("--dry_run", action="store_true", help="print the plan and how long it will take")
    parser.add_argument("--show", action="store_true", help="run nothing; show the results so far")
    parser.add_argument(
        "--device", type=DeviceName, default="cpu", help="device of every run: cpu, cuda, cuda:N or auto"
    )
    parser.add_argument(
        "--precision",
        type=Literal["float32", "bf16"],
        default="float32",
        help="numbers that the nets of every run compute in; each precision has a folder of its own",
    )
    options = parser.parse_args(argv)
    console = plain_console()
    if options.name == "list":
        console.print(_catalogue())
        return 0
    experiment, scale = find_experiment(options.name), SCALES[options.scale].computing_in(options.precision)
    seeds = options.seeds if options.seeds is not None else experiment.seeds_at(scale)
    root: Path = options.out.absolute() / scale.folder
    cells = [cell.on(options.device) for cell in select_cells(experiment.cells(scale), options.only)]
    if not cells:
        rows = ", ".join(dict.fromkeys(cell.row for cell in experiment.cells(scale)))
        raise InputError(f"no row or column of {options.name} contains {options.only!r}; its rows are {rows}")
    if options.dry_run:
        _print_plan(cells, seeds, root, None if options.ray else options.workers or cores(), console)
        return 0
    again = shlex.join(["engram", "paper", *argv])
    code = 0 if options.show else _run(cells, seeds, root, options.ray, options.workers, console, again)
    table, drawn = _write(options.name, experiment, scale, root, seeds)
    console.print(Markdown(table.to_markdown()))
    console.print(f"{root / options.name}.md, .json{' and .png' if drawn else ''}", soft_wrap=True)
    return code


def _run(
    cells: list[Cell], seeds: int, root: Path, ray: str | None, workers: int | None, console: Console, again: str
) -> int:
    """Run the jobs of these cells that are not finished, and return the exit code. `again` is the command given."""
    jobs = jobs_left(cells, seeds, root)
    if not jobs:
        return 0
    teller = _ProgressPrinter(list(jobs), console)
    with stop_on_signal() as should_stop:
        try:
            outcome = run_jobs(
                list(jobs.values()),
                RayEngine(ray) if ray else LocalEngine(workers),
                root / f".stop-{platform.node()}-{os.getpid()}-{secrets.token_hex(4)}",
                listen=teller,
                should_stop=should_stop,
            )
        except Interrupted as stopped:
            console.print(
                f"{stopped}. Everything is saved: the same command goes on from there:\n{again}", soft_wrap=True
            )
            return should_stop.exit_code
    if outcome.errors:
        console.print(f"{len(outcome.errors)} of {len(jobs)} runs failed; the same command tries them again:")
        console.print(again, soft_wrap=True)
        return 1
    return 0


def _catalogue() -> Table:
    table = new_table(("name", "what it shows"), ("cells at small", "at full"))
    for name, experiment in EXPERIMENTS.items():
        counts = [str(len(experiment.cells(SCALES[scale]))) for scale in ("small", "full")]
        table.add_row(name, experiment.title, *counts)
    return table


def _write(name: str, experiment: Experiment, scale: Scale, root: Path, seeds: int) -> tuple[PaperTable, bool]:
    """Write the table and its plot, and return the table and whether there was anything to draw."""
    root.mkdir(parents=True, exist_ok=True)
    with waiting_lock(root):
        table = gather(name, experiment, scale, finished_below(root), seeds)
        replace_file(root / f"{name}.md", table.to_markdown().encode())
        write_json(root / f"{name}.json", table.to_json())
        return table, draw(table, experiment, scale, root, root / f"{name}.png")


def _print_plan(cells: list[Cell], seeds: int, root: Path, workers: int | None, console: Console) -> None:
    """Print the plan: the runs, and how long they take on one core and, if given, on `workers` cores."""
    plan = new_table(("row", "column"), ("runs", "finished", "time per run"))
    with _timing(console) as on_timing:
        costs = costs_of(cells, seeds, finished_below(root), on_timing)
    for cell, cost in zip(cells, costs, strict=True):
        about = "" if cost.finished else "about "
        plan.add_row(cell.row, cell.column, str(seeds), str(cost.finished), f"{about}{readable_time(cost.seconds)}")
    console.print(plan)
    for departure in departures_of(cells):
        console.print(f"departure: {departure}")
    distinct = {cell.folder(0): cost for cell, cost in zip(cells, costs, strict=True)}
    left = sum(cost.seconds * (seeds - cost.finished) for cost in distinct.values())
    together = f", {readable_time(left / workers)} on {workers}" if workers else ""
    console.print(f"{len(distinct)} cells of {seeds} seeds: about {readable_time(left)} of one core{together}")


@contextmanager
def _timing(console: Console) -> Iterator[Callable[[str], None]]:
    """Show which method is being timed: in one line that changes, or each once if the output is no terminal."""
    if not console.is_terminal:
        yield functools.cache(lambda method: console.print(f"timing a step of {method}"))
        return
    with console.status("timing") as status:
        yield lambda method: status.update(f"timing a step of {method}")


def readable_time(seconds: float) -> str:
    """Return a duration in the largest unit that fits, such as "2.5 hours"."""
    for unit, length in (("years", 31_557_600), ("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} seconds"


class _ProgressPrinter:
    """Prints a line when a run begins and when it ends, with the number of ended runs and the time left."""

    def __init__(self, names: list[str], console: Console) -> None:
        self.names, self.console = names, console
        self.began, self.ended = time.monotonic(), 0
        self.reasons: set[str] = set()

    def __call__(self, job: int, what: Happened, why: str) -> None:
        said = f"{what}: {self.names[job]}"
        if why:
            said += ": as before" if why in self.reasons else f": {why}"
            self.reasons.add(why)
        if what in ("done", "failed"):
            self.ended += 1
            left = (time.monotonic() - self.began) / self.ended * (len(self.names) - self.ended)
            said += f" ({self.ended} of {len(self.names)}, about {readable_time(left)} left)"
        self.console.print(said, soft_wrap=True)
