"""What came of a table's runs: means with intervals, differences seed by seed, the paper's figures beside; and what is
missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engram.paper.catalogue import Experiment
from engram.paper.grid import Finished
from engram.paper.scales import Scale
from engram.paper.targets import Target
from engram.report.tables import Interval, Result

MEASURES: dict[str, tuple[str, Callable[[Result], float]]] = {
    "acc": ("end accuracy %", lambda result: float(result["average_end_accuracy"])),
    "forgetting": ("forgetting %, all tasks", lambda result: float(result["average_forgetting_all_tasks"])),
    "seconds": ("seconds", lambda result: float(result["seconds"]["total"])),
}
"""What can be shown of a result, by the paper's short name: heading and how to find it."""


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
        text = str(self.measured) if self.seeds > 1 else f"{self.measured.mean:.1f}"
        return f"{text} ({self.seeds} of {self.wanted} seeds)" if self.missing else text


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
    departures: tuple[str, ...]
    shuffled: tuple[str, ...]
    """Rows whose stream is plainly shuffled within a task."""
    reference: str | None
    measures: tuple[str, ...]
    results: dict[str, Result]
    """All that it was made from, by the folder of the run: whoever has these can make it again."""

    @property
    def missing(self) -> int:
        """Runs that are not there."""
        first = self.measures[0]
        return sum(entry.missing for (_, _, measure), entry in self.entries.items() if measure == first)

    @property
    def runs(self) -> int:
        first = self.measures[0]
        return sum(entry.wanted for (_, _, measure), entry in self.entries.items() if measure == first)

    def remarks(self) -> list[str]:
        """What a reader must know before believing a figure."""
        said = [f"± is a 95 % t-interval over seeds{_difference_note(self.reference)}."]
        if self.scale != "full":
            said.append("The paper's figures are of its own protocol and ten runs: compare orders, not numbers.")
        if self.missing:
            said.append(f"Partial: {self.missing} of {self.runs} runs are missing.")
        fewest = min((entry.seeds for entry in self.entries.values() if entry.seeds), default=0)
        if fewest == 1:
            said.append("Of a single seed nothing can be said about chance: differences of a few points mean nothing.")
        elif 1 < fewest < 5:
            said.append(f"{fewest} seeds are few: only differences whose interval excludes zero mean anything.")
        if self.shuffled:
            said.append(
                f"{', '.join(self.shuffled)}: images plainly shuffled within a task, as published; other streams have "
                "one image of each class in a batch."
            )
        said += [f"Departure: {departure}." for departure in self.departures]
        return said

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
        """One table a measure, in Markdown, and the remarks."""
        blocks = []
        for measure in self.measures:
            lines = [f"| {MEASURES[measure][0]} | {' | '.join(self.columns)} |", "|---" * (len(self.columns) + 1) + "|"]
            for row in self.rows:
                shown = [self._shown(row, column, measure) for column in self.columns]
                lines.append(f"| {row} | {' | '.join(shown)} |")
            blocks.append("\n".join(lines))
        blocks.append("\n".join(f"- {remark}" for remark in self.remarks()))
        return "\n\n".join(blocks)

    def _shown(self, row: str, column: str, measure: str) -> str:
        entry = self.entries.get((row, column, measure))
        if entry is None:
            return ""
        parts = [str(entry)]
        if entry.difference:
            parts.append(f"[{entry.difference.signed() if entry.seeds > 1 else f'{entry.difference.mean:+.1f}'}]")
        if entry.paper:
            parts.append(f"(paper {_target_text(entry.paper)})")
        return " ".join(parts)


def gather(name: str, experiment: Experiment, scale: Scale, finished: Finished, seeds: int) -> PaperTable:
    """The table from what is finished of it."""
    cells = experiment.cells(scale)
    found = {(cell.row, cell.column): cell.results(finished, seeds) for cell in cells}
    entries = {}
    for cell in cells:
        reference = found.get((experiment.grid.reference or "", cell.column), {})
        for measure in experiment.measures:
            paper = experiment.targets.of(cell.row, *cell.key, measure) if experiment.targets else None
            entries[cell.row, cell.column, measure] = _entry(
                found[cell.row, cell.column],
                reference if cell.row != experiment.grid.reference else {},
                measure,
                seeds,
                paper,
            )
    departures = dict.fromkeys(f"{cell.row}: {'; '.join(cell.departures)}" for cell in cells if cell.departures)
    return PaperTable(
        name=name,
        title=experiment.title,
        scale=scale.name,
        seeds=seeds,
        columns=tuple(dict.fromkeys(cell.column for cell in cells)),
        rows=tuple(dict.fromkeys(cell.row for cell in cells)),
        entries=entries,
        departures=tuple(departures),
        shuffled=tuple(dict.fromkeys(cell.row for cell in cells if cell.shuffled)),
        reference=experiment.grid.reference,
        measures=experiment.measures,
        results={
            cell.folder(seed).as_posix(): result
            for cell in cells
            for seed, result in found[cell.row, cell.column].items()
        },
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
        "paper": entry.paper,
    }


def _difference_note(reference: str | None) -> str:
    return f"; in brackets the difference to {reference}, seed by seed" if reference else ""


def _target_text(target: Target) -> str:
    mean, spread = target
    return f"{mean}" if spread is None else f"{mean} ± {spread}"
