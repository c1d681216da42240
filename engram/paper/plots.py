"""Plots of the paper's tables and figures."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engram.evaluation.metrics import Interval
from engram.experiment.events import summarizing_losses
from engram.experiment.result import RunResult
from engram.paper.catalogue import Experiment
from engram.paper.grid import Column, Grid
from engram.paper.outcome import MEASURES, Entry, PaperTable
from engram.paper.scales import Scale
from engram.persistence.files import read_plain, replace_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colors of Okabe and Ito, which color-blind readers can tell apart."""
READINGS = {"net": "-", "averaged": "--"}
"""The readings of a run, and the line each is drawn with."""
LARGEST_PICTURE = 1 << 26
"""Most bytes of a picture of a run that is taken over."""


def draw(table: PaperTable, experiment: Experiment, scale: Scale, root: Path, path: Path) -> bool:
    """Write the plot of a table, and return whether there was anything to draw.

    Args:
        table: the table to draw.
        experiment: experiment of the table, which says how it is drawn.
        scale: scale of the runs.
        root: folder of the scale, which holds the folders of the runs.
        path: file to write, a PNG.
    """
    if experiment.plot == "pictures":
        return _pictures(experiment, scale, root, path)
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 4), layout="constrained")
    drawn = _PLOTS[experiment.plot](axes, table, experiment, scale, root)
    if drawn:
        axes.set_title(table.title + (" (partial)" if table.missing else ""), fontsize=10)
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=100)
        replace_file(path, picture.getvalue())
    plt.close(figure)
    return drawn


def _measured(table: PaperTable, row: str, measure: str) -> dict[str, Entry]:
    found = {column: table.entries.get((row, column, measure)) for column in table.columns}
    return {column: entry for column, entry in found.items() if entry and entry.measured}


def _bars(axes: Axes, table: PaperTable, experiment: Experiment, scale: Scale, root: Path) -> bool:
    width = 0.8 / max(1, len(table.rows))
    drawn = False
    for index, row in enumerate(table.rows):
        entries = _measured(table, row, "acc")
        at = [table.columns.index(column) + index * width - 0.4 + width / 2 for column in entries]
        means = [entry.measured.mean for entry in entries.values() if entry.measured]
        spread = [(entry.measured.half_width or 0.0) for entry in entries.values() if entry.measured]
        again, color = divmod(index, len(COLORS))
        bars = axes.bar(at, means, width, yerr=spread, label=row, capsize=2, color=COLORS[color], edgecolor="white")
        for bar in bars:
            bar.set_hatch("//" * again)
        drawn = drawn or bool(entries)
    axes.set_xticks(range(len(table.columns)), table.columns, fontsize=7)
    axes.set_ylabel(MEASURES["acc"][0])
    axes.legend(fontsize=7, ncols=2, frameon=False)
    return drawn


@dataclass(frozen=True)
class _Line:
    """A line to draw: a row of the table over some of its columns."""

    label: str
    row: str
    columns: list[Column]


def _over_memory(axes: Axes, table: PaperTable, experiment: Experiment, scale: Scale, root: Path) -> bool:
    def size(column: Column) -> float:
        return float(column.slots * scale.protocols[column.dataset].classes)

    axes.set(xlabel="images in memory", ylabel=MEASURES["acc"][0], xscale="log")
    columns = _columns(experiment, scale)
    return _draw_lines(axes, table, scale, [_Line(row, row, columns) for row in table.rows], size, "acc")


def _over_setting(axes: Axes, table: PaperTable, experiment: Experiment, scale: Scale, root: Path) -> bool:
    def value(column: Column) -> float:
        return float(column.setting[2]) if column.setting else 0.0

    columns = _columns(experiment, scale)
    varied = {column.setting[1] for column in columns if column.setting}
    axes.set(xlabel=", ".join(varied), ylabel=MEASURES["acc"][0])
    lines = []
    for slots in dict.fromkeys(column.slots for column in columns):
        own = [column for column in columns if column.slots == slots]
        size = slots * scale.protocols[own[0].dataset].classes
        lines += [_Line(f"{row}, K={size}", row, own) for row in table.rows]
    drawn = _draw_lines(axes, table, scale, lines, value, "acc")
    if "seconds" in table.measures and drawn:
        beside = axes.twinx()
        beside.set_ylabel("seconds (dashed)")
        _draw_lines(beside, table, scale, lines, value, "seconds", style="--")
    return drawn


def _columns(experiment: Experiment, scale: Scale) -> list[Column]:
    assert isinstance(experiment.grid, Grid)
    return experiment.grid.columns_at(scale)


def _draw_lines(
    axes: Axes,
    table: PaperTable,
    scale: Scale,
    lines: Sequence[_Line],
    position: Callable[[Column], float],
    measure: str,
    style: str = "-",
) -> bool:
    drawn = False
    for index, line in enumerate(lines):
        entries = [(column, table.entries.get((line.row, column.label(scale), measure))) for column in line.columns]
        points = [(position(column), entry.measured) for column, entry in entries if entry and entry.measured]
        if points:
            axes.errorbar(
                [x for x, _ in points],
                [interval.mean for _, interval in points],
                yerr=[interval.half_width or 0.0 for _, interval in points],
                label=line.label,
                color=COLORS[index % len(COLORS)],
                linestyle=style,
                marker="o",
                capsize=2,
            )
            drawn = True
    if drawn and style == "-":
        axes.legend(fontsize=8, frameon=False)
    return drawn


def _cost(axes: Axes, table: PaperTable, experiment: Experiment, scale: Scale, root: Path) -> bool:
    drawn = False
    for index, row in enumerate(table.rows):
        seconds, accuracy = _measured(table, row, "seconds"), _measured(table, row, "acc")
        common = [column for column in table.columns if column in seconds and column in accuracy]
        if common:
            x = [seconds[column].measured.mean for column in common]  # type: ignore[union-attr]
            y = [accuracy[column].measured.mean for column in common]  # type: ignore[union-attr]
            axes.plot(x, y, marker="o", linewidth=0.8, label=row, color=COLORS[index % len(COLORS)])
            drawn = True
    axes.set(xlabel="seconds per run, one thread", ylabel=MEASURES["acc"][0])
    if drawn:
        axes.legend(fontsize=8, frameon=False)
    return drawn


def _loss(axes: Axes, table: PaperTable, experiment: Experiment, scale: Scale, root: Path) -> bool:
    drawn = False
    for index, cell in enumerate(experiment.cells(scale)):
        rounds = summarizing_losses(root / cell.folder(0))
        if rounds:
            batches, totals = zip(*((batch, sum(terms.values())) for batch, terms in rounds), strict=True)
            axes.plot(batches, totals, label=cell.column, color=COLORS[index % len(COLORS)])
            drawn = True
            axes.set_ylabel(" + ".join(rounds[0][1]).replace("_", " "))
    axes.set(xlabel="batch", yscale="log")
    if drawn:
        axes.legend(fontsize=8, frameon=False)
    return drawn


def _after_each_task(axes: Axes, table: PaperTable, experiment: Experiment, scale: Scale, root: Path) -> bool:
    """Draw means over seeds with their 95 % intervals, and the paper's figures at the end with its own."""
    drawn = False
    for index, cell in enumerate(experiment.cells(scale)):
        folders = [cell.folder(seed).as_posix() for seed in range(table.seeds)]
        runs = [run for folder in folders if isinstance(run := table.results.get(folder), RunResult)]
        color = COLORS[index % len(COLORS)]
        for reading, style in READINGS.items():
            curves = [run.readings[reading].average_accuracy_after_task for run in runs if reading in run.readings]
            if not curves:
                continue
            points = [Interval.of(list(values)) for values in zip(*curves, strict=True)]
            tasks, means = range(1, len(points) + 1), [point.mean for point in points]
            label = f"{cell.row}{', averaged net' * (reading == 'averaged')} ({len(curves)} seeds)"
            axes.plot(tasks, means, style, color=color, label=label, linewidth=1.2)
            spread = [point.half_width or 0.0 for point in points]
            low, high = ([mean + sign * half for mean, half in zip(means, spread, strict=True)] for sign in (-1, 1))
            axes.fill_between(tasks, low, high, color=color, alpha=0.12, linewidth=0)
            drawn = True
        paper = table.entries[cell.row, cell.column, "acc"].paper
        if runs and paper:
            at = len(runs[0].evaluation.matrix) + 0.15 * (index + 1)
            axes.errorbar([at], [paper[0]], yerr=[paper[1] or 0.0], color=color, marker="x", capsize=2)
    axes.set(xlabel="task (x: the paper, at the end)", ylabel="average accuracy % over the tasks so far")
    if drawn:
        axes.legend(fontsize=8, frameon=False)
    return drawn


def _pictures(experiment: Experiment, scale: Scale, root: Path, path: Path) -> bool:
    for cell in experiment.cells(scale):
        sheet = root / cell.folder(0) / "memory" / "stream-sheet.png"
        if sheet.is_file():
            replace_file(path, read_plain(sheet, LARGEST_PICTURE))
            return True
    return False


_PLOTS: dict[str, Callable[..., bool]] = {
    "bars": _bars,
    "memory-size": _over_memory,
    "setting": _over_setting,
    "cost": _cost,
    "loss": _loss,
    "tasks": _after_each_task,
}
