"""The plan of a table: the chosen cells, the runs that are left, and how long they will take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engram.experiment.scheduler import SchedulableJob
from engram.paper.estimate import Stopwatch
from engram.paper.grid import Cell, Finished, finished_below


def select_cells(cells: list[Cell], only: str) -> list[Cell]:
    """Return the cells that a text chooses.

    Args:
        cells: cells of the table.
        only: a row, a column, or a row and a column with a space between. If no cell matches it exactly, all cells
            whose row and column contain it are returned.
    """
    exactly = [cell for cell in cells if only in (cell.row, cell.column, f"{cell.row} {cell.column}")]
    return exactly or [cell for cell in cells if only in f"{cell.row} {cell.column}"]


def jobs_left(cells: list[Cell], seeds: int, root: Path) -> dict[str, SchedulableJob]:
    """Return the runs that are not finished, by name; a run that two cells share is returned once.

    Args:
        cells: cells of the table.
        seeds: number of seeds of each cell.
        root: folder of the scale.
    """
    found: dict[Path, tuple[str, SchedulableJob]] = {}
    finished = finished_below(root)
    for seed in range(seeds):
        for cell in cells:
            if seed not in cell.results(finished, seeds):
                name = f"{cell.row}, {cell.column}, seed {seed}"
                found.setdefault(cell.folder(seed), (name, cell.job(seed, root)))
    return dict(found.values())


@dataclass(frozen=True)
class Cost:
    """The cost of a cell.

    Args:
        finished: number of finished runs.
        seconds: seconds of one run: the mean of the finished runs, or an estimate if there are none.
    """

    finished: int
    seconds: float


def costs_of(
    cells: list[Cell], seeds: int, finished: Finished, on_timing: Callable[[str], None] = lambda what: None
) -> list[Cost]:
    """Return the cost of each cell; cells that share their runs are timed once.

    Args:
        cells: cells of the table.
        seeds: number of seeds of each cell.
        finished: results by the folder of their run.
        on_timing: called with the name of a method before a step of it is timed.
    """
    known: dict[Path, Cost] = {}
    stopwatch = Stopwatch(on_timing)
    for cell in cells:
        if cell.folder(0) not in known:
            taken = [result.seconds["total"] for result in cell.results(finished, seeds).values()]
            seconds = sum(taken) / len(taken) if taken else stopwatch.seconds_of(cell)
            known[cell.folder(0)] = Cost(len(taken), seconds)
    return [known[cell.folder(0)] for cell in cells]
