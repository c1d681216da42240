"""Tables printed to the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from engram.report.tables import Row, few_seeds


def _comparison(rows: Sequence[Row]) -> Table:
    """Return a table that fits a terminal of 80 columns."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("method")
    for column in ("n", "accuracy %", "difference", "forgetting %", "seconds", "memory", "state"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.name,
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
    console.print(_comparison(rows))
    console.print("± is a 95 % t-interval over n seeds; differences are to the first row, paired by seed")
    for row in rows:
        console.print(
            f"{row.name}: learning accuracy {row.learning}, forgetting over all tasks {row.forgetting_all_tasks}",
            soft_wrap=True,
        )
    if warning := few_seeds(rows):
        console.print(warning)


def time_by_part(row: Row) -> str:
    """Return one line with the seconds per run of a row, by part."""
    parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in row.seconds.items() if part != "total")
    return f"{row.name}: seconds per run: {parts}"


def readable_bytes(count: int) -> str:
    """Return a number of bytes in kB or MB."""
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"
