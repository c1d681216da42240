"""A table of the paper as rows of methods and columns of streams, and the runs that its cells need."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engram.base.settings import Settings, schema_of
from engram.experiment.config import RunConfig, RunOptions, changed_settings, of_version
from engram.experiment.jobs import Job
from engram.experiment.result import RunResult, is_run_result, read_json
from engram.memory import NoMemory
from engram.methods import configurable, find_method
from engram.options import limit_slug
from engram.paper.scales import FULL, Protocol, Scale
from engram.paper.slices import SliceConfig, SliceJob, SliceResult
from engram.summarize import StreamSummarizer

Finished = Mapping[str, RunResult | SliceResult]
"""Results by the folder of their run, relative to the folder of the scale."""

AVERAGE = 0.99
"""Decay of the averaged net, which every run also evaluates. The tables show the net as trained, as the paper does."""

EPOCHS: int = schema_of(RunOptions)["epochs"].default
ASER_ON_MINI_IMAGENET = 3
"""ASER's setting `per_class` on Mini-ImageNet, as published; it is 2 on other data sets."""


@dataclass(frozen=True)
class Row:
    """A row of a table: a method, and the settings in which it differs from the method's defaults.

    Args:
        label: name of the row in the table.
        method: name of the method.
        settings: changed settings of the method's parts, by role.
        repeats: training steps on each batch; the method's own if not given.
        stream: kind of stream.
        bytes_of_ssd: enlarge the memory by as many images as fit into the bytes of `+ssd`'s queue and working copies.
        against: label of the row to compare with, paired by seed; the grid's reference if not given.
        not_on: data sets that the method was not published on; the row has no cell there.
    """

    label: str
    method: str
    settings: Mapping[str, Settings] = field(default_factory=dict)
    repeats: int | None = None
    stream: str = "paper"
    bytes_of_ssd: bool = False
    against: str | None = None
    not_on: tuple[str, ...] = ()


@dataclass(frozen=True)
class Column:
    """A column of a table: a data set and a memory size, and in some figures the value of a setting.

    Args:
        dataset: the paper's name of the data set.
        slots: images per class that the memory holds.
        setting: role, name and value of the setting that the figure varies, if it varies one.
    """

    dataset: str
    slots: int
    setting: tuple[str, str, Any] | None = None

    def label(self, scale: Scale) -> str:
        """Return the name of the column in the table at a scale."""
        protocol = scale.protocols[self.dataset]
        varied = f", {self.setting[1]} {self.setting[2]}" if self.setting else ""
        return f"{protocol.dataset} K={self.slots * protocol.classes}{varied}"


@dataclass(frozen=True)
class Cell:
    """A cell of a table, with the configuration of its runs; the runs differ only in their seed.

    Args:
        row: label of the row.
        column: label of the column.
        config: configuration of the runs.
        departures: differences from what the paper runs, in words.
        key: the paper's data set and number of images per class, to look up the paper's figure.
        against: label of the row in the same column to compare with.
    """

    row: str
    column: str
    config: RunConfig | SliceConfig
    departures: tuple[str, ...] = ()
    key: tuple[str, int] = ("", 0)
    against: str | None = None

    def on(self, device: str) -> Cell:
        """Return the same cell with runs on another device; slices always run on the CPU."""
        if isinstance(self.config, SliceConfig):
            return self
        return dataclasses.replace(self, config=self.config.replace(device=device))

    @property
    def shuffled(self) -> bool:
        """Whether the images of its stream are shuffled within each task."""
        return isinstance(self.config, RunConfig) and self.config.options["stream"] == "paper-shuffled"

    def job(self, seed: int, root: Path) -> Job | SliceJob:
        """Return the run of this cell with a seed. Cells of the same configuration in two tables share their runs.

        Args:
            seed: seed of the run.
            root: folder of the scale, which holds the folders of all runs.
        """
        out = root / self.folder(seed)
        if isinstance(self.config, SliceConfig):
            return SliceJob(dataclasses.replace(self.config, seed=seed), out)
        return Job(self.config.replace(seed=seed), out)

    @property
    def dataset(self) -> str:
        """Name of the data set that the runs use."""
        return self.config.dataset if isinstance(self.config, SliceConfig) else self.config.options["dataset"]

    def results(self, finished: Finished, seeds: int) -> dict[int, Any]:
        """Return the finished results of this configuration by seed, for seeds below `seeds`."""
        found = {seed: finished.get(self.folder(seed).as_posix()) for seed in range(seeds)}
        return {seed: result for seed, result in found.items() if result and _is_of(self.config, result)}

    def folder(self, seed: int) -> Path:
        """Return the folder of the run with a seed, relative to the folder of the scale."""
        config = self.config
        if isinstance(config, SliceConfig):
            return Path(config.dataset) / f"slices-{config.groups}x" / f"seed-{seed}"
        chosen = config.options
        changed = [f"{name}={value}" for name, value in changed_settings(config).items()]
        if chosen["repeats"] is not None:
            changed.append(f"x{chosen['repeats']}")
        if chosen["keep_originals"]:
            changed.append("originals")
        slug = re.sub(r"[^\w.+=()-]", "_", "-".join([config.method, limit_slug(chosen), *changed]))
        return Path(self.dataset) / slug / f"seed-{seed}"


@dataclass(frozen=True)
class Grid:
    """Rows and columns of a table of runs.

    Args:
        rows: rows of the table.
        columns: columns of the table.
        reference: label of the row that other rows are compared with, unless they name another.
        keep_originals: keep the first images of classes, to be shown beside their summaries.
    """

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    reference: str | None = None
    keep_originals: bool = False

    def cells(self, scale: Scale) -> list[Cell]:
        """Return the cells at a scale. A method without a memory is shown only at the smallest memory of a data set."""
        made = []
        for row in self.rows:
            for column in self.columns_at(scale):
                memoryless = find_method(row.method).policy is NoMemory
                if memoryless and column.slots != min(self._slots(column.dataset)):
                    continue
                if column.dataset in row.not_on:
                    continue
                made.append(self._cell(row, column, scale))
        return made

    def columns_at(self, scale: Scale) -> list[Column]:
        """Return the columns that a scale has, in the paper's order."""
        return [
            column
            for column in self.columns
            if column.dataset in scale.protocols and column.slots in scale.slots[column.dataset]
        ]

    def labels(self, scale: Scale) -> tuple[str, ...]:
        """Return the labels of the columns at a scale, in the paper's order."""
        return tuple(dict.fromkeys(column.label(scale) for column in self.columns_at(scale)))

    def _slots(self, dataset: str) -> list[int]:
        return [column.slots for column in self.columns if column.dataset == dataset]

    def _cell(self, row: Row, column: Column, scale: Scale) -> Cell:
        protocol = scale.protocols[column.dataset]
        settings, departures = _settings(row, column, protocol)
        repeats = row.repeats or find_method(row.method).repeats
        if repeats > 2 and scale.fewer_repeats > 1:
            departures.append(f"{-(-repeats // scale.fewer_repeats)} repeats instead of {repeats}")
            repeats = -(-repeats // scale.fewer_repeats)
        iid = find_method(row.method).stream == "iid"
        if iid and scale.epochs != EPOCHS:
            departures.append(f"{scale.epochs} epochs instead of {EPOCHS}, batches of {scale.iid_batch}")
        memory_size = column.slots * protocol.classes
        if row.bytes_of_ssd:
            memory_size += _images_beside_the_memory(column.slots, protocol)
        config = RunConfig(
            method=row.method,
            dataset=protocol.dataset,
            stream="iid" if iid else row.stream,
            tasks=protocol.tasks,
            classes_per_task=protocol.classes_per_task,
            batch=scale.iid_batch if iid else None,
            images_per_class=protocol.images_per_class,
            epochs=scale.epochs if iid else EPOCHS,
            memory_size=memory_size,
            repeats=repeats if repeats != find_method(row.method).repeats else None,
            precision=scale.precision,
            average=AVERAGE,
            answer_from="net",
            keep_originals=self.keep_originals,
            settings=settings,
        )
        return Cell(
            row.label,
            column.label(scale),
            config,
            tuple(departures),
            (column.dataset, column.slots),
            row.against or (self.reference if row.label != self.reference else None),
        )


@dataclass(frozen=True)
class SliceGrid:
    """The slices table: one row for each number of groups that the classes are split into.

    Args:
        groups: numbers of groups; the first row is the reference of the others.
    """

    groups: tuple[int, ...]

    def labels(self, scale: Scale) -> tuple[str, ...]:
        """Return the label of the only column."""
        return (f"{scale.protocols['cifar100'].dataset}, {scale.slices.classes} classes",)

    def cells(self, scale: Scale) -> list[Cell]:
        """Return the cells at a scale. Rows are named as in the paper, where the groups divide a hundred classes."""
        protocol, slices = scale.protocols["cifar100"], scale.slices
        departures = [
            f"{ours} {what} instead of {theirs}"
            for ours, theirs, what in (
                (slices.classes, FULL.slices.classes, "classes"),
                (slices.images_per_class, FULL.slices.images_per_class, "distilled images per class"),
                (slices.steps, FULL.slices.steps, "steps of distilling"),
                (slices.training_steps, FULL.slices.training_steps, "training steps"),
            )
            if ours != theirs
        ]
        fewer = {groups: min(groups, slices.classes) for groups in self.groups}
        return [
            Cell(
                row=f"{100 // groups}x{groups}",
                column=self.labels(scale)[0],
                config=SliceConfig(
                    protocol.dataset,
                    slices.classes,
                    fewer[groups],
                    slices.images_per_class,
                    slices.steps,
                    protocol.shared.get("theta", {}).get("width", 128),
                    training_steps=slices.training_steps,
                ),
                departures=(
                    *departures,
                    *([f"{fewer[groups]} groups instead of {groups}"] if fewer[groups] < groups else []),
                ),
                key=("cifar100", 50),
                against=None if groups == self.groups[0] else f"{100 // self.groups[0]}x{self.groups[0]}",
            )
            for groups in self.groups
        ]


def departures_of(cells: Sequence[Cell]) -> list[str]:
    """Return the departures from the paper, row by row, with their data sets if not all cells of the row have them."""
    lines = []
    for row in dict.fromkeys(cell.row for cell in cells):
        row_cells = [cell for cell in cells if cell.row == row]
        for departure in dict.fromkeys(departure for cell in row_cells for departure in cell.departures):
            departing = [cell for cell in row_cells if departure in cell.departures]
            datasets = ", ".join(dict.fromkeys(cell.dataset for cell in departing))
            lines.append(f"{row}{f' on {datasets}' if len(departing) < len(row_cells) else ''}: {departure}")
    return lines


def finished_below(root: Path) -> dict[str, RunResult | SliceResult]:
    """Return all results below the folder of a scale, by the folder of their run."""
    files = sorted(root.glob("*/*/seed-*/result.json"))
    return {file.parent.relative_to(root).as_posix(): read_any_result(read_json(file), str(file)) for file in files}


def read_any_result(content: Any, source: str) -> RunResult | SliceResult:
    """Return the result of a run or of a slice job, given as plain data."""
    return RunResult.from_dict(content, source) if is_run_result(content) else SliceResult.from_dict(content)


def _is_of(config: RunConfig | SliceConfig, result: RunResult | SliceResult) -> bool:
    """Return whether a result has this configuration, apart from the seed, as the version that ran it understood it."""
    if isinstance(config, RunConfig):
        return isinstance(result, RunResult) and of_version(config, result.version).asks_for(result.config)
    return isinstance(result, SliceResult) and dataclasses.replace(result.config, seed=config.seed) == config


def _settings(row: Row, column: Column, protocol: Protocol) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the settings of a cell, and in words those that depart from the paper's."""
    parts = configurable(find_method(row.method))
    settings: dict[str, dict[str, Any]] = {role: dict(own) for role, own in row.settings.items()}
    departures = []
    for role, changes in {**protocol.shared, "summarize": protocol.summarize}.items():
        if role in parts and changes:
            settings[role] = dict(changes) | settings.get(role, {})
            varied = column.setting[:2] if column.setting else None
            departures += [f"{role}.{name} {value}" for name, value in changes.items() if (role, name) != varied]
    if column.setting and column.setting[0] in parts:
        role, name, value = column.setting
        settings.setdefault(role, {})[name] = value
    if column.dataset == "mini-imagenet":
        for role in ("policy", "retrieval"):
            if "per_class" in schema_of(parts[role]):
                settings.setdefault(role, {})["per_class"] = ASER_ON_MINI_IMAGENET
    return settings, departures


def _images_beside_the_memory(slots: int, protocol: Protocol) -> int:
    """Return the bytes of queue (uint8) and working copies (image and momentum) as a number of float32 images."""
    queue: int = protocol.summarize.get("queue", schema_of(StreamSummarizer)["queue"].default)
    return protocol.classes_per_task * queue // 4 + 2 * protocol.classes_per_task * slots
