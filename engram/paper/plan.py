"""Which cells of a table are meant, which runs they still need, and how long those will take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engram.experiment.sweep import SweepJob
from engram.paper.estimate import Stopwatch
from engram.paper.grid import Cell, Finished, finished_below


def chosen(cells: list[Cell], only: str) -> list[Cell]:
    """Those whose row, column, or both is exactly this; where there is none, whose row and column contain it."""
    exactly = [cell for cell in cells if only in (cell.row, cell.column, f"{cell.row} {cell.column}")]
    return exactly or [cell for cell in cells if only in f"{cell.row} {cell.column}"]


def jobs_left(cells: list[Cell], seeds: int, root: Path) -> dict[str, SweepJob]:
    """Those not finished, by name; a run that stands in two cells is one."""
    found: dict[Path, tuple[str, SweepJob]] = {}
    finished = finished_below(root)
    for seed in range(seeds):
        for cell in cells:
            if seed not in cell.results(finished, seeds):
                name = f"{cell.row}, {cell.column}, seed {seed}"
                found.setdefault(cell.folder(seed), (name, cell.job(seed, root)))
    return dict(found.values())


@dataclass(frozen=True)
class Cost:
    """Runs of a cell that are finished, and the seconds of one: their mean, or an estimate where there is none."""

    finished: int
    seconds: float


def costs_of(cells: list[Cell], seeds: int, finished: Finished) -> list[Cost]:
    """One for each cell; what stands in two is timed once."""
    known: dict[Path, Cost] = {}
    stopwatch = Stopwatch()
    for cell in cells:
        if cell.folder(0) not in known:
            taken = [float(result["seconds"]["total"]) for result in cell.results(finished, seeds).values()]
            seconds = sum(taken) / len(taken) if taken else stopwatch.seconds_of(cell)
            known[cell.folder(0)] = Cost(len(taken), seconds)
    return [known[cell.folder(0)] for cell in cells]
