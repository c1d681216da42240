"""What came of a table's runs: means with intervals, differences seed by seed, the paper's figures beside; and what is
missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from engram.experiment.config import RunConfig
from engram.experiment.metrics import Interval, warning_of_few
from engram.paper.catalogue import Experiment
from engram.paper.grid import Cell, Finished, departures_of
from engram.paper.scales import FULL, Protocol, Scale
from engram.paper.targets import Target
from engram.report.tables import Result

MEASURES: dict[str, tuple[str, Callable[[Result], float]]] = {
    "acc": ("end accuracy %", lambda result: float(result["average_end_accuracy"])),
    "forgetting": ("forgetting %, all tasks", lambda result: float(result["average_forgetting_all_tasks"])),
    "seconds": ("seconds", lambda result: float(result["seconds"]["total"])),
}
"""What can be shown of a result, by the paper's short name: heading and how to find it."""
MOST_COLUMNS = 5
"""Of a table with fewer rows than columns."""


@dataclass(frozen=True)
class Entry:
    """One cell and one measure. `paper` is the paper's figure at its own protocol, not at ours."""

    measured: Interval | None
    seeds: int
    wanted: int
    paper: Target | None
    difference: Interval | None
    """To the reference row, over common seeds."""

    @property
    def missing(self) -> int:
        return self.wanted - self.seeds

    def __str__(self) -> str:
        if self.measured is None:
            return "missing"
        return f"{self.measured} ({self.seeds} of {self.wanted} seeds)" if self.missing else str(self.measured)


@dataclass(frozen=True)
class PaperTable:
    """A table as far as it has come."""

    name: str
    title: str
    scale: str
    seeds: int
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    entries: dict[tuple[str, str, str], Entry]
    """By row, column and measure; a cell the table does not have is absent."""
    measures: tuple[str, ...]
    runs: int
    """That the whole table is made from; cells may share one."""
    notes: tuple[str, ...]
    """What is particular to this table."""
    results: dict[str, Result]
    """All that it was made from, by the folder of the run: whoever has these can make it again."""

    @property
    def missing(self) -> int:
        """Runs that are not there."""
        return self.runs - len(self.results)

    def remarks(self) -> list[str]:
        """What a reader must know before believing a figure."""
        said = ["± is a 95 % t-interval over seeds."]
        if self.missing:
            said.append(f"Partial: {self.missing} of {self.runs} runs are missing.")
        shown = [interval for entry in self.entries.values() for interval in (entry.measured, entry.difference)]
        if warning := warning_of_few(interval.count for interval in shown if interval):
            said.append(warning)
        return [*said, *self.notes]

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "scale": self.scale,
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
            "results": self.results,
        }

    def to_markdown(self) -> str:
        return f"## {self.title}\n\n`engram paper {self.name} --scale {self.scale}`\n\n{self.figures()}\n"

    def figures(self) -> str:
        """One table a measure, in Markdown, and the remarks. A wide table of a few rows has its columns as lines."""
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
    """The table from what is finished of it."""
    cells = experiment.cells(scale)
    found = {(cell.row, cell.column): cell.results(finished, seeds) for cell in cells}
    entries = {}
    for cell in cells:
        reference = found.get((cell.against or "", cell.column), {})
        for measure in experiment.measures:
            paper = experiment.targets.of(cell.row, *cell.key, measure) if experiment.targets else None
            own = found[cell.row, cell.column]
            entries[cell.row, cell.column, measure] = _entry(own, reference, measure, seeds, paper)
    results = {
        cell.folder(seed).as_posix(): result for cell in cells for seed, result in found[cell.row, cell.column].items()
    }
    folders = {cell.folder(0).parent.as_posix() for cell in cells}
    others = [path for path in finished if path not in results and str(PurePosixPath(path).parent) in folders]
    notes = [*_about_comparisons(cells), *_about_data(cells), *_about_protocols(cells, scale)]
    if others:
        notes.append(f"Finished but not shown: {len(others)} runs of other seeds (--seeds) or configurations.")
    return PaperTable(
        name=name,
        title=experiment.title,
        scale=scale.name,
        seeds=seeds,
        columns=experiment.grid.labels(scale),
        rows=tuple(dict.fromkeys(cell.row for cell in cells)),
        entries=entries,
        measures=experiment.measures,
        runs=len(folders) * seeds,
        notes=tuple(notes),
        results=results,
    )


def _entry(
    own: dict[int, Result], reference: dict[int, Result], measure: str, wanted: int, paper: Target | None
) -> Entry:
    value = MEASURES[measure][1]
    common = sorted(own.keys() & reference.keys())
    differences = [value(own[seed]) - value(reference[seed]) for seed in common]
    return Entry(
        measured=Interval.of([value(result) for result in own.values()]) if own else None,
        seeds=len(own),
        wanted=wanted,
        paper=paper,
        difference=Interval.of(differences) if differences else None,
    )


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
    """What the differences are between."""
    compared = {cell.row: cell.against for cell in cells if cell.against}
    references = list(dict.fromkeys(compared.values()))
    said = []
    if len(references) == 1:
        said.append(f"In brackets the difference to {references[0]}, seed by seed.")
    elif references:
        pairs = ", ".join(f"{row} to {other}" for row, other in compared.items())
        said.append(f"In brackets the differences, seed by seed: {pairs}.")
    shuffled = dict.fromkeys(cell.row for cell in cells if cell.shuffled)
    if shuffled:
        said.append(
            f"{', '.join(shuffled)}: images plainly shuffled within a task, as published; other streams over tasks "
            "have one image of each class in a batch."
        )
    both = [row for row, other in compared.items() if (row in shuffled) != (other in shuffled)]
    if both:
        said.append(f"The difference of {', '.join(both)} is also that between these two streams.")
    return said


def _about_data(cells: Sequence[Cell]) -> list[str]:
    if not any(cell.key[0] == "tiny-imagenet" for cell in cells):
        return []
    return [
        "The paper's figures of Tiny-ImageNet are of images whose pixels were scrambled when they were stored: they "
        "cannot be compared with ours."
    ]


def _about_protocols(cells: Sequence[Cell], scale: Scale) -> list[str]:
    """How what was run differs from what the paper ran."""
    if scale is FULL:
        return []
    said = ["The paper's figures are of its own protocol and ten runs: compare orders, not numbers."]
    for dataset in dict.fromkeys(cell.key[0] for cell in cells if isinstance(cell.config, RunConfig)):
        ours, papers = scale.protocols[dataset], FULL.protocols[dataset]
        said.append(f"Here {_length(ours)}; in the paper {_length(papers)}.")
    return said + [f"Departure: {departure}." for departure in departures_of(cells)]


def _length(protocol: Protocol) -> str:
    return (
        f"{protocol.tasks} tasks of {protocol.classes_per_task} classes of {protocol.dataset}, "
        f"{protocol.images_per_class} images each"
    )


def _target_text(target: Target) -> str:
    mean, spread = target
    return f"{mean}" if spread is None else f"{mean} ± {spread}"
