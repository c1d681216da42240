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
from engram.cli.parser import Parser
from engram.cli.stopping import stop_on_signal
from engram.core import InputError
from engram.experiment.engines import LocalEngine, RayEngine
from engram.experiment.lock import in_turn
from engram.experiment.pool import cores
from engram.experiment.run import Interrupted
from engram.experiment.sweep import Engine, SweepJob, Swept, sweep
from engram.paper.catalogue import EXPERIMENTS, Experiment, find_experiment
from engram.paper.estimate import Stopwatch
from engram.paper.grid import Cell, finished_below
from engram.paper.outcome import PaperTable, gather
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
    console = Console()
    if options.name == "list":
        console.print(_catalogue())
        return 0
    experiment, scale = find_experiment(options.name), SCALES[options.scale]
    seeds = options.seeds if options.seeds is not None else experiment.seeds_at(scale)
    if seeds < 1:
        raise InputError("no seed to run: --seeds must be at least 1")
    root: Path = options.out.absolute() / scale.name
    cells = _chosen(experiment.cells(scale), options.only)
    if not cells:
        rows = ", ".join(dict.fromkeys(cell.row for cell in experiment.cells(scale)))
        raise InputError(f"no row or column of {options.name} contains {options.only!r}; its rows are {rows}")
    if options.dry_run:
        _print_plan(cells, seeds, root, options.workers or cores(), console)
        return 0
    swept, code = Swept(), 0
    jobs = {} if options.show else _jobs(cells, seeds, root)
    if jobs:
        engine: Engine = RayEngine(options.ray) if options.ray else LocalEngine(options.workers)
        with stop_on_signal() as should_stop:
            try:
                swept = sweep(
                    list(jobs.values()),
                    engine,
                    root / f".stop-{platform.node()}-{os.getpid()}",
                    listen=_Teller(list(jobs), console),
                    should_stop=should_stop,
                )
            except Interrupted as stopped:
                console.print(f"{stopped}. Everything is saved: the same command goes on from there.")
                code = should_stop.exit_code
        for position, reason in swept.failures.items():
            console.print(f"failed: {list(jobs)[position]}: {reason}", highlight=False, soft_wrap=True)
    table = gather(options.name, experiment, scale, finished_below(root), seeds)
    drawn = _write(table, experiment, scale, root)
    console.print(Markdown(table.to_markdown()))
    console.print(f"{root / options.name}.md, .json{' and .png' if drawn else ''}", highlight=False, soft_wrap=True)
    return code or (1 if swept.failures else 0)


def _chosen(cells: list[Cell], only: str) -> list[Cell]:
    """Those whose row, column, or both is exactly this; where there is none, whose row and column contain it."""
    exactly = [cell for cell in cells if only in (cell.row, cell.column, f"{cell.row} {cell.column}")]
    return exactly or [cell for cell in cells if only in f"{cell.row} {cell.column}"]


def _catalogue() -> Table:
    table = Table("name", "what it shows", "cells at small", "at full", box=None)
    for name, experiment in EXPERIMENTS.items():
        counts = [str(len(experiment.cells(SCALES[scale]))) for scale in ("small", "full")]
        table.add_row(name, experiment.title, *counts)
    return table


def _jobs(cells: list[Cell], seeds: int, root: Path) -> dict[str, SweepJob]:
    """Those not finished, by name; a run that stands in two cells is one."""
    found: dict[Path, tuple[str, SweepJob]] = {}
    finished = finished_below(root)
    for seed in range(seeds):
        for cell in cells:
            if seed in cell.results(finished, seeds):
                continue
            name = f"{cell.row}, {cell.column}, seed {seed}"
            found.setdefault(cell.folder(seed), (name, cell.job(seed, root)))
    return dict(found.values())


def _write(table: PaperTable, experiment: Experiment, scale: Scale, root: Path) -> bool:
    """Returns whether there was something to draw."""
    root.mkdir(parents=True, exist_ok=True)
    with in_turn(root):
        replace_file(root / f"{table.name}.md", table.to_markdown().encode())
        write_json(root / f"{table.name}.json", table.to_json())
        return draw(table, experiment, scale, root, root / f"{table.name}.png")


def _print_plan(cells: list[Cell], seeds: int, root: Path, workers: int, console: Console) -> None:
    """Seconds of a cell are those of its finished runs, or an estimate by a few timed steps."""
    plan = Table("row", "column", "runs", "finished", "seconds a run", box=None)
    left, known, stopwatch = 0.0, dict[Path, float](), Stopwatch()
    finished = finished_below(root)
    for cell in cells:
        folder = cell.folder(0)
        taken = [float(result["seconds"]["total"]) for result in cell.results(finished, seeds).values()]
        if folder not in known:
            known[folder] = sum(taken) / len(taken) if taken else stopwatch.seconds_of(cell)
            left += known[folder] * (seeds - len(taken))
        about = "" if taken else "about "
        plan.add_row(cell.row, cell.column, str(seeds), str(len(taken)), f"{about}{known[folder]:.0f}")
    console.print(plan)
    departures = dict.fromkeys(f"{cell.row}: {'; '.join(cell.departures)}" for cell in cells if cell.departures)
    for departure in departures:
        console.print(f"departure: {departure}", highlight=False)
    console.print(
        f"{len(known)} cells of {seeds} seeds: about {readable_time(left)} of one core, "
        f"{readable_time(left / workers)} on {workers}",
        highlight=False,
    )


def readable_time(seconds: float) -> str:
    for unit, length in (("years", 31_557_600), ("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} seconds"


class _Teller:
    """One line a run that ends, with how many are done and how long the rest may take."""

    def __init__(self, names: list[str], console: Console) -> None:
        self.names, self.console = names, console
        self.began, self.ended = time.monotonic(), 0

    def __call__(self, job: int, what: str) -> None:
        self.ended += what != "again"
        left = (time.monotonic() - self.began) / max(1, self.ended) * (len(self.names) - self.ended)
        self.console.print(
            f"{what}: {self.names[job]} ({self.ended} of {len(self.names)}, about {readable_time(left)} left)",
            highlight=False,
            soft_wrap=True,
        )
