"""`engram paper list`, `engram paper NAME --scale S`: the paper's tables and figures."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from engram.checkpoint import replace_file, write_json
from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.cli.stopping import stop_on_signal
from engram.errors import InputError
from engram.experiment.engines import LocalEngine, RayEngine
from engram.experiment.jobs import cores
from engram.experiment.lock import in_turn
from engram.experiment.run import Interrupted
from engram.experiment.sweep import Happened, sweep
from engram.paper.catalogue import EXPERIMENTS, Experiment, find_experiment
from engram.paper.grid import Cell, departures_of, finished_below
from engram.paper.outcome import PaperTable, gather
from engram.paper.plan import chosen, costs_of, jobs_left
from engram.paper.plots import draw
from engram.paper.scales import SCALES, Scale


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="engram paper",
        usage="engram paper list | engram paper NAME --scale smoke|small|full [options]",
        description="Run a table or figure of the paper, or go on with it, and show it as far as it has come. Finished "
        "runs are never run again, and tables share them.",
    )
    parser.add_argument("name", type=str, help="list, or one of them")
    parser.add_argument("--scale", type=Literal["smoke", "small", "full"], default="small", help="how large")
    parser.add_argument("--seeds", type=int | None, default=None, help="of each cell (default: the scale's)")
    parser.add_argument(
        "--only", type=str, default="", help="only this row, column, or row and column; else the cells that contain it"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/paper"), help="folder of the runs and tables")
    parser.add_argument("--workers", type=int | None, default=None, help="processes (default: one a core)")
    parser.add_argument("--ray", type=str | None, default=None, help="address of a Ray cluster, auto, or local")
    parser.add_argument("--dry_run", action="store_true", help="print the plan and how long it will take")
    parser.add_argument("--show", action="store_true", help="run nothing, show what is there")
    options = parser.parse_args(argv)
    console = plain_console()
    if options.name == "list":
        console.print(_catalogue())
        return 0
    experiment, scale = find_experiment(options.name), SCALES[options.scale]
    seeds = options.seeds if options.seeds is not None else experiment.seeds_at(scale)
    if seeds < 1:
        raise InputError("no seed to run: --seeds must be at least 1")
    root: Path = options.out.absolute() / scale.name
    cells = chosen(experiment.cells(scale), options.only)
    if not cells:
        rows = ", ".join(dict.fromkeys(cell.row for cell in experiment.cells(scale)))
        raise InputError(f"no row or column of {options.name} contains {options.only!r}; its rows are {rows}")
    if options.dry_run:
        _print_plan(cells, seeds, root, None if options.ray else options.workers or cores(), console)
        return 0
    code = 0 if options.show else _run(cells, seeds, root, options.ray, options.workers, console)
    table, drawn = _write(options.name, experiment, scale, root, seeds)
    console.print(Markdown(table.to_markdown()))
    console.print(f"{root / options.name}.md, .json{' and .png' if drawn else ''}", soft_wrap=True)
    return code


def _run(cells: list[Cell], seeds: int, root: Path, ray: str | None, workers: int | None, console: Console) -> int:
    """What is not finished of these cells; the exit code."""
    jobs = jobs_left(cells, seeds, root)
    if not jobs:
        return 0
    teller = _Teller(list(jobs), console)
    with stop_on_signal() as should_stop:
        try:
            swept = sweep(
                list(jobs.values()),
                RayEngine(ray) if ray else LocalEngine(workers),
                root / f".stop-{platform.node()}-{os.getpid()}",
                listen=teller,
                should_stop=should_stop,
            )
        except Interrupted as stopped:
            console.print(f"{stopped}. Everything is saved: the same command goes on from there.", soft_wrap=True)
            return should_stop.exit_code
    if swept.failures:
        console.print(f"{len(swept.failures)} of {len(jobs)} runs failed; the same command tries them again")
        return 1
    return 0


def _catalogue() -> Table:
    table = Table("name", "what it shows", "cells at small", "at full", box=None)
    for name, experiment in EXPERIMENTS.items():
        counts = [str(len(experiment.cells(SCALES[scale]))) for scale in ("small", "full")]
        table.add_row(name, experiment.title, *counts)
    return table


def _write(name: str, experiment: Experiment, scale: Scale, root: Path, seeds: int) -> tuple[PaperTable, bool]:
    """The table of what is finished now, and whether there was something to draw."""
    root.mkdir(parents=True, exist_ok=True)
    with in_turn(root):
        table = gather(name, experiment, scale, finished_below(root), seeds)
        replace_file(root / f"{name}.md", table.to_markdown().encode())
        write_json(root / f"{name}.json", table.to_json())
        return table, draw(table, experiment, scale, root, root / f"{name}.png")


def _print_plan(cells: list[Cell], seeds: int, root: Path, workers: int | None, console: Console) -> None:
    """What there is to do, and how long it takes one core, and `workers` of them if they are known."""
    plan = Table("row", "column", "runs", "finished", "seconds a run", box=None)
    costs = costs_of(cells, seeds, finished_below(root))
    for cell, cost in zip(cells, costs, strict=True):
        about = "" if cost.finished else "about "
        plan.add_row(cell.row, cell.column, str(seeds), str(cost.finished), f"{about}{cost.seconds:.0f}")
    console.print(plan)
    for departure in departures_of(cells):
        console.print(f"departure: {departure}")
    distinct = {cell.folder(0): cost for cell, cost in zip(cells, costs, strict=True)}
    left = sum(cost.seconds * (seeds - cost.finished) for cost in distinct.values())
    together = f", {readable_time(left / workers)} on {workers}" if workers else ""
    console.print(f"{len(distinct)} cells of {seeds} seeds: about {readable_time(left)} of one core{together}")


def readable_time(seconds: float) -> str:
    for unit, length in (("years", 31_557_600), ("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} seconds"


class _Teller:
    """One line when a run begins and when it ends, with how many are done and how long the rest may take."""

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
