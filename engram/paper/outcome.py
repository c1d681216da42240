"""The results of a table: means with intervals, differences paired by seed, the paper's figures, and missing runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from engram.base.precision import Precision
from engram.evaluation.metrics import Interval, warning_of_few
from engram.experiment.config import RunConfig
from engram.experiment.result import RunResult
from engram.paper.catalogue import Experiment
from engram.paper.grid import Cell, Finished, departures_of
from engram.paper.scales import FULL, Protocol, Scale
from engram.paper.slices import SliceResult
from engram.paper.targets import Target
from engram.persistence.migration import departs_from_practice

Result = RunResult | SliceResult

MEASURES: dict[str, tuple[str, Callable[[Any], float | None]]] = {
    "acc": ("end accuracy %", lambda result: float(result.average_end_accuracy)),
    "averaged": ("end accuracy % of the averaged net", lambda result: averaged_end_accuracy(result)),
    "forgetting": ("forgetting %, all tasks", lambda result: float(result.evaluation.average_forgetting_all_tasks)),
    "seconds": ("seconds", lambda result: float(result.seconds["total"])),
}
"""Measures of a result by the paper's short name: the heading, and a function that reads the value, or None where the
result has none. "averaged" is ours: a second reading of the same training."""
MOST_COLUMNS = 5
"""A table with more columns than this, and with more columns than rows, is shown with rows and columns swapped."""


def averaged_end_accuracy(result: Result) -> float | None:
    """Return the end accuracy of the averaged net, or None if the run kept none."""
    readings = result.readings if isinstance(result, RunResult) else {}
    return readings["averaged"].average_end_accuracy if "averaged" in readings else None


@dataclass(frozen=True)
class Entry:
    """One measure of one cell.

    Args:
        measured: mean and interval over the finished seeds, or None if no run is finished.
        seeds: number of finished seeds.
        wanted: number of seeds that the table needs.
        paper: the paper's figure, measured with its own protocol, not with ours.
        difference: difference to the reference row over common seeds.
    """

    measured: Interval | None
    seeds: int
    wanted: int
    paper: Target | None
    difference: Interval | None

    @property
    def missing(self) -> int:
        """The number of seeds that are not finished."""
        return self.wanted - self.seeds

    def __str__(self) -> str:
        if self.measured is None:
            return "missing"
        return f"{self.measured} ({self.seeds} of {self.wanted} seeds)" if self.missing else str(self.measured)


@dataclass(frozen=True)
class PaperTable:
    """A table made from the runs that are finished so far.

    Args:
        name: name of the experiment.
        title: what the table shows.
        scale: name of the scale.
        precision: numbers that the nets of the runs compute in.
        seeds: number of seeds of each cell.
        columns: labels of the columns.
        rows: labels of the rows.
        entries: entries by row, column and measure; cells that the table does not have are absent.
        measures: measures that are shown, by the paper's short names.
        runs: number of runs the whole table needs; cells may share a run.
        notes: remarks that apply to this table only.
        results: the results it was made from, by the folder of the run; the table can be made again from them.
    """

    name: str
    title: str
    scale: str
    precision: Precision
    seeds: int
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    entries: dict[tuple[str, str, str], Entry]
    measures: tuple[str, ...]
    runs: int
    notes: tuple[str, ...]
    results: dict[str, Result]

    @property
    def missing(self) -> int:
        """The number of runs that are missing."""
        return self.runs - len(self.results)

    def remarks(self) -> list[str]:
        """Return the remarks that a reader needs to judge the figures."""
        remarks = ["± is a 95 % t-interval over seeds."]
        if self.missing:
            remarks.append(f"Partial: {self.missing} of {self.runs} runs are missing.")
        shown = [interval for entry in self.entries.values() for interval in (entry.measured, entry.difference)]
        if warning := warning_of_few(interval.count for interval in shown if interval):
            remarks.append(warning)
        return [*remarks, *self.notes]

    def to_json(self) -> dict[str, Any]:
        """Return the table, its remarks and its results as plain data."""
        return {
            "name": self.name,
            "title": self.title,
            "scale": self.scale,
            "precision": self.precision,
            "seeds": self.seeds,
            "complete": not self.missing,
            "columns": list(self.columns),
            "rows": [
                {
                    "row": row,
                    "cells": [
                        {"column": column, "measure": measure, **_entry_json(self.entries[row, column, measure])}
                        for column in self.columns
                        for measure in self.measures
                        if (row, column, measure) in self.entries
                    ],
                }
                for row in self.rows
            ],
            "remarks": self.remarks(),
            "results": {folder: result.to_dict() for folder, result in self.results.items()},
        }

    def to_markdown(self) -> str:
        """Return the title, the command that makes the table, and its figures in Markdown."""
        chosen = "" if self.precision == "float32" else f" --precision {self.precision}"
        command = f"engram paper {self.name} --scale {self.scale}{chosen}"
        return f"## {self.title}\n\n`{command}`\n\n{self.figures()}\n"

    def figures(self) -> str:
        """Return one Markdown table per measure, and the remarks. A wide table has its rows and columns swapped."""
        turned = len(self.columns) > max(len(self.rows), MOST_COLUMNS)
        across, down = (self.rows, self.columns) if turned else (self.columns, self.rows)
        blocks = []
        for measure in self.measures:
            lines = [f"| {MEASURES[measure][0]} | {' | '.join(across)} |", "|---" * (len(across) + 1) + "|"]
            for line in down:
                places = [(other, line) if turned else (line, other) for other in across]
                shown = [self._shown(row, column, measure) for row, column in places]
                lines.append(f"| {line} | {' | '.join(shown)} |")
            blocks.append("\n".join(lines))
        blocks.append("\n".join(f"- {remark}" for remark in self.remarks()))
        return "\n\n".join(blocks)

    def _shown(self, row: str, column: str, measure: str) -> str:
        entry = self.entries.get((row, column, measure))
        if entry is None:
            return ""
        parts = [str(entry)]
        if entry.difference:
            parts.append(f"[{entry.difference.signed(entry.seeds)}]")
        if entry.paper:
            parts.append(f"(paper {_target_text(entry.paper)})")
        return " ".join(parts)


def gather(name: str, experiment: Experiment, scale: Scale, finished: Finished, seeds: int) -> PaperTable:
    """Return the table made from the runs of it that are finished.

    Args:
        name: name of the experiment.
        experiment: the table or figure.
        scale: scale of the runs.
        finished: results by the folder of their run.
        seeds: number of seeds of each cell.
    """
    cells = experiment.cells(scale)
    found = {(cell.row, cell.column): cell.results(finished, seeds) for cell in cells}
    averaged = any(averaged_end_accuracy(result) is not None for own in found.values() for result in own.values())
    measures = (*experiment.measures, *(["averaged"] if averaged else []))
    entries = {}
    for cell in cells:
        reference = found.get((cell.against or "", cell.column), {})
        for measure in measures:
            paper = experiment.targets.of(cell.row, *cell.key, measure) if experiment.targets else None
            own = found[cell.row, cell.column]
            entries[cell.row, cell.column, measure] = _entry(own, reference, measure, seeds, paper)
    results = {
        cell.folder(seed).as_posix(): result for cell in cells for seed, result in found[cell.row, cell.column].items()
    }
    folders = {cell.folder(0).parent.as_posix() for cell in cells}
    others = [path for path in finished if path not in results and str(PurePosixPath(path).parent) in folders]
    notes = [*_about_comparisons(cells), *_about_data(cells), *_about_protocols(cells, scale)]
    notes += _about_versions(cells, found)
    if scale.precision != "float32":
        notes.append(f"Nets compute in {scale.precision}; weights, memory and losses are float32.")
    if others:
        notes.append(f"Finished but not shown: {len(others)} runs of other seeds (--seeds) or configurations.")
    return PaperTable(
        name=name,
        title=experiment.title,
        scale=scale.name,
        precision=scale.precision,
        seeds=seeds,
        columns=experiment.grid.labels(scale),
        rows=tuple(dict.fromkeys(cell.row for cell in cells)),
        entries=entries,
        measures=measures,
        runs=len(folders) * seeds,
        notes=tuple(notes),
        results=results,
    )


def _entry(
    own: dict[int, Result], reference: dict[int, Result], measure: str, wanted: int, paper: Target | None
) -> Entry:
    values, others = (_values(results, measure) for results in (own, reference))
    differences = [values[seed] - others[seed] for seed in sorted(values.keys() & others.keys())]
    return Entry(
        measured=Interval.of(list(values.values())) if values else None,
        seeds=len(values),
        wanted=wanted,
        paper=paper,
        difference=Interval.of(differences) if differences else None,
    )


def _values(results: Mapping[int, Result], measure: str) -> dict[int, float]:
    """Return the values of a measure by seed, of the results that have it."""
    read = {seed: MEASURES[measure][1](result) for seed, result in results.items()}
    return {seed: value for seed, value in read.items() if value is not None}


def _entry_json(entry: Entry) -> dict[str, Any]:
    return {
        "seeds": entry.seeds,
        "missing": entry.missing,
        "mean": None if entry.measured is None else round(entry.measured.mean, 4),
        "half_width": None if entry.measured is None else entry.measured.half_width,
        "difference": None if entry.difference is None else round(entry.difference.mean, 4),
        "difference_half_width": None if entry.difference is None else entry.difference.half_width,
        "difference_seeds": 0 if entry.difference is None else entry.difference.count,
        "paper": entry.paper,
    }


def _about_comparisons(cells: Sequence[Cell]) -> list[str]:
    """Return remarks on which rows are compared, and on the streams they were run on."""
    compared = {cell.row: cell.against for cell in cells if cell.against}
    references = list(dict.fromkeys(compared.values()))
    remarks = []
    if len(references) == 1:
        remarks.append(f"Brackets show the difference to {references[0]}, paired by seed.")
    elif references:
        pairs = ", ".join(f"{row} to {other}" for row, other in compared.items())
        remarks.append(f"Brackets show differences paired by seed: {pairs}.")
    shuffled = dict.fromkeys(cell.row for cell in cells if cell.shuffled)
    if shuffled:
        remarks.append(
            f"{', '.join(shuffled)}: images are shuffled within each task, as published; other streams over tasks "
            "have one image of each class in a batch."
        )
    both = [row for row, other in compared.items() if (row in shuffled) != (other in shuffled)]
    if both:
        remarks.append(f"The difference of {', '.join(both)} includes the difference between these two streams.")
    return remarks


def _about_versions(cells: Sequence[Cell], found: Mapping[tuple[str, str], dict[int, Any]]) -> list[str]:
    """Return a remark on the rows that were run by a version with other defaults."""
    runs = [(cell, result) for cell in cells for result in found[cell.row, cell.column].values()]
    earlier = dict.fromkeys(
        cell.row
        for cell, result in runs
        if isinstance(cell.config, RunConfig) and departs_from_practice(cell.config.method, result.version)
    )
    if not earlier:
        return []
    return [
        f"Run by version 0.1.0, which did parts of these methods differently (docs/method.md): {', '.join(earlier)}."
    ]


def _about_data(cells: Sequence[Cell]) -> list[str]:
    if not any(cell.key[0] == "tiny-imagenet" for cell in cells):
        return []
    return [
        "The paper's figures for Tiny-ImageNet come from images whose pixels were scrambled when they were stored: "
        "they cannot be compared with ours."
    ]


def _about_protocols(cells: Sequence[Cell], scale: Scale) -> list[str]:
    """Return remarks on how the runs differ from the paper's."""
    if scale.published:
        return []
    remarks = ["The paper's figures come from its own protocol and ten runs: compare rankings, not numbers."]
    for dataset in dict.fromkeys(cell.key[0] for cell in cells if isinstance(cell.config, RunConfig)):
        ours, papers = scale.protocols[dataset], FULL.protocols[dataset]
        remarks.append(f"Here {_length(ours)}; in the paper {_length(papers)}.")
    return remarks + [f"Departure: {departure}." for departure in departures_of(cells)]


def _length(protocol: Protocol) -> str:
    return (
        f"{protocol.tasks} tasks of {protocol.classes_per_task} classes of {protocol.dataset}, "
        f"{protocol.images_per_class} images each"
    )


def _target_text(target: Target) -> str:
    mean, spread = target
    return f"{mean}" if spread is None else f"{mean} ± {spread}"
