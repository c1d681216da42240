"""Tables printed to the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from engram.report.tables import Row, few_seeds


def new_table(left: Sequence[str], right: Sequence[str] = (), gap: int = 2) -> Table:
    """Return an empty table in the style of all tables of the command line.

    Args:
        left: headings of the first columns, which hold words.
        right: headings of the columns behind them, which hold numbers; their cells are never broken.
        gap: spaces between two columns.
    """
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0))
    for heading in left:
        table.add_column(heading)
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _comparison(rows: Sequence[Row], labels: Sequence[str]) -> Table:
    """Return a table that fits a terminal of 80 columns."""
    table = new_table(["method"], ["n", "accuracy", "difference", "forgetting", "seconds", "memory", "state"], gap=1)
    for row, label in zip(rows, labels, strict=True):
        table.add_row(
            label,
            str(len(row.seeds)),
            str(row.accuracy),
            row.difference.signed(len(row.seeds)) if row.difference else "",
            str(row.forgetting),
            f"{row.seconds['total']:.0f}",
            readable_bytes(row.image_bytes),
            readable_bytes(row.total_bytes),
        )
    return table


def print_comparison(rows: Sequence[Row], console: Console) -> None:
    """Print a table of runs, with notes on how to read it."""
    labels = _labels(rows)
    console.print(_comparison(rows, labels))
    for row, label in zip(rows, labels, strict=True):
        if label != row.name:
            console.print(f"{label}: {row.name}", soft_wrap=True)
    console.print("Accuracies in %; ± is a 95 % t-interval over n seeds; differences to the first row go seed by seed.")
    for row in rows:
        console.print(
            f"{row.name}: learning accuracy {row.learning}, forgetting over all tasks {row.forgetting_all_tasks}",
            soft_wrap=True,
        )
    if warning := few_seeds(rows):
        console.print(warning)


def _labels(rows: Sequence[Row]) -> list[str]:
    """Return short names: that of the method, and a number if settings tell it from another row."""
    labels, numbered = [], 0
    for row in rows:
        method, *settings = row.name.split(" ", 1)
        numbered += len(settings)
        labels.append(f"{method} [{numbered}]" if settings else method)
    return labels


def time_by_part(row: Row) -> str:
    """Return one line with the seconds per run of a row, by part."""
    parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in row.seconds.items() if part != "total")
    return f"{row.name}: seconds per run: {parts}"


def readable_bytes(count: int) -> str:
    """Return a number of bytes in kB or MB."""
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"
