"""A table of the paper as rows of methods and columns of streams, and the runs its cells need."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engram.experiment.config import RunConfig
from engram.experiment.jobs import Job
from engram.memory import NoMemory
from engram.methods import Settings, changed_settings, configurable, find, settings_of
from engram.paper.scales import FULL, Protocol, Scale
from engram.paper.slices import SliceConfig, SliceJob
from engram.sizes import parse_bytes
from engram.summarize import StreamSummarizer

Finished = Mapping[str, dict[str, Any]]
"""Results by the folder of their run, below that of the scale."""

AVERAGE = 0.99
"""Decay of the averaged net that every run is also read by; the tables show the net as trained, as the paper does."""

ASER_ON_MINI_IMAGENET = 3
"""Images a class it evaluates by, as published; two elsewhere."""


@dataclass(frozen=True)
class Row:
    """A line of a table: a method, and what it sets otherwise than the method does."""

    label: str
    method: str
    settings: Mapping[str, Settings] = field(default_factory=dict)
    repeats: int | None = None
    stream: str = "paper"
    bytes_of_ssd: bool = False
    """Give it, as images, the bytes of `+ssd`: memory, queue and working copies."""
    against: str | None = None
    """The row it is compared with, seed by seed; the grid's reference if it names none."""
    not_on: tuple[str, ...] = ()
    """Data sets it was not published on."""


@dataclass(frozen=True)
class Column:
    """A data set and a number of images a class; in figures over a setting also that setting's value."""

    dataset: str
    slots: int
    setting: tuple[str, str, Any] | None = None
    """Room, name and value."""

    def label(self, scale: Scale) -> str:
        protocol = scale.protocols[self.dataset]
        varied = f", {self.setting[1]} {self.setting[2]}" if self.setting else ""
        return f"{protocol.dataset} K={self.slots * protocol.classes}{varied}"


@dataclass(frozen=True)
class Cell:
    """Where runs of one configuration stand in a table; the runs differ in their seed."""

    row: str
    column: str
    config: RunConfig | SliceConfig
    departures: tuple[str, ...] = ()
    """From what the paper runs, in words."""
    key: tuple[str, int] = ("", 0)
    """The paper's data set and images a class."""
    against: str | None = None
    """The row it is compared with, in the same column."""

    @property
    def shuffled(self) -> bool:
        """Whether its stream is the paper's plainly shuffled one."""
        return isinstance(self.config, RunConfig) and self.config.stream == "paper-shuffled"

    def job(self, seed: int, root: Path) -> Job | SliceJob:
        """The run of a seed, below the folder of the scale: the same cell of two tables is one run."""
        out = root / self.folder(seed)
        if isinstance(self.config, SliceConfig):
            return SliceJob(dataclasses.replace(self.config, seed=seed), out)
        return Job(dataclasses.replace(self.config, seed=seed), out)

    def results(self, finished: Finished, seeds: int) -> dict[int, dict[str, Any]]:
        """Those of this configuration, by seed."""
        found = {seed: finished.get(self.folder(seed).as_posix()) for seed in range(seeds)}
        return {seed: result for seed, result in found.items() if result and _is_of(self.config, result)}

    def folder(self, seed: int) -> Path:
        config = self.config
        if isinstance(config, SliceConfig):
            return Path(config.dataset) / f"slices-{config.groups}x" / f"seed-{seed}"
        size = f"k{config.memory_size}" if config.memory_bytes is None else f"{config.memory_bytes}"
        changed = [
            f"{room}.{name}={value}"
            for room, settings in sorted(config.settings.items())
            for name, value in sorted(settings.items())
        ]
        if config.repeats is not None:
            changed.append(f"x{config.repeats}")
        if config.keep_originals:
            changed.append("originals")
        slug = re.sub(r"[^\w.+=()-]", "_", "-".join([config.method, size, *changed]))
        return Path(config.dataset) / slug / f"seed-{seed}"


@dataclass(frozen=True)
class Grid:
    """Rows and columns. `reference` is the row that others are compared with, if they name none themselves."""

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    reference: str | None = None
    keep_originals: bool = False

    def cells(self, scale: Scale) -> list[Cell]:
        """A method without a memory stands in the first column of a data set alone."""
        made = []
        for row in self.rows:
            for column in self.columns_at(scale):
                memoryless = find(row.method).policy is NoMemory
                if memoryless and column.slots != min(self._slots(column.dataset)):
                    continue
                if column.dataset in row.not_on:
                    continue
                made.append(self._cell(row, column, scale))
        return made

    def columns_at(self, scale: Scale) -> list[Column]:
        return [
            column
            for column in self.columns
            if column.dataset in scale.protocols and column.slots in scale.slots[column.dataset]
        ]

    def labels(self, scale: Scale) -> tuple[str, ...]:
        """Of the columns, in the paper's order."""
        return tuple(dict.fromkeys(column.label(scale) for column in self.columns_at(scale)))

    def _slots(self, dataset: str) -> list[int]:
        return [column.slots for column in self.columns if column.dataset == dataset]

    def _cell(self, row: Row, column: Column, scale: Scale) -> Cell:
        protocol = scale.protocols[column.dataset]
        settings, departures = _settings(row, column, protocol)
        repeats = row.repeats or find(row.method).repeats
        if repeats > 2 and scale.fewer_repeats > 1:
            departures.append(f"{-(-repeats // scale.fewer_repeats)} repeats instead of {repeats}")
            repeats = -(-repeats // scale.fewer_repeats)
        iid = find(row.method).stream == "iid"
        if iid and scale.epochs != RunConfig.epochs:
            departures.append(f"{scale.epochs} epochs instead of {RunConfig.epochs}, batches of {scale.iid_batch}")
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
            epochs=scale.epochs if iid else RunConfig.epochs,
            memory_size=memory_size,
            repeats=repeats if repeats != find(row.method).repeats else None,
            average=AVERAGE,
            answer_from="net",
            keep_originals=self.keep_originals,
            settings=changed_settings(find(row.method), settings),
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
    """The slices table: one row a number of groups that the classes are distilled in."""

    groups: tuple[int, ...]

    def labels(self, scale: Scale) -> tuple[str, ...]:
        return (f"{scale.protocols['cifar100'].dataset}, {scale.slices.classes} classes",)

    def cells(self, scale: Scale) -> list[Cell]:
        """Rows are named as in the paper, where the groups share out a hundred classes."""
        protocol, slices = scale.protocols["cifar100"], scale.slices
        departures = [
            f"{ours} {what} instead of {theirs}"
            for ours, theirs, what in (
                (slices.classes, FULL.slices.classes, "classes"),
                (slices.images_per_class, FULL.slices.images_per_class, "distilled images a class"),
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
    """Row by row, and of which data sets where they are not of all its cells."""
    said = []
    for row in dict.fromkeys(cell.row for cell in cells):
        own = [cell for cell in cells if cell.row == row]
        for departure in dict.fromkeys(departure for cell in own for departure in cell.departures):
            departing = [cell for cell in own if departure in cell.departures]
            datasets = ", ".join(dict.fromkeys(cell.config.dataset for cell in departing))
            said.append(f"{row}{f' on {datasets}' if len(departing) < len(own) else ''}: {departure}")
    return said


def finished_below(root: Path) -> dict[str, dict[str, Any]]:
    files = sorted(root.glob("*/*/seed-*/result.json"))
    return {file.parent.relative_to(root).as_posix(): json.loads(file.read_text()) for file in files}


def _is_of(config: RunConfig | SliceConfig, result: Mapping[str, Any]) -> bool:
    """Whether the result is of this configuration, as far as it says; the seed apart, and what `run` fills in (an iid
    stream has a single task, whatever it was cut from). A result calls the limit of its memory `memory_budget`."""
    chosen = {name: value for name, value in vars(config).items() if value is not None}
    if "memory_bytes" in chosen:
        chosen["memory_budget"] = parse_bytes(chosen.pop("memory_bytes"))
    said = chosen.keys() & result.keys() - {"seed", "prequential"} - (
        {"tasks"} if result.get("stream") == "iid" else set()
    )
    return all(json.loads(json.dumps(chosen[name])) == result[name] for name in said)


def _settings(row: Row, column: Column, protocol: Protocol) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Settings of the cell, and those among them that depart from the paper's."""
    parts = configurable(find(row.method))
    settings: dict[str, dict[str, Any]] = {room: dict(own) for room, own in row.settings.items()}
    departures = []
    for room, changes in {**protocol.shared, "summarize": protocol.summarize}.items():
        if room in parts and changes:
            settings[room] = dict(changes) | settings.get(room, {})
            varied = column.setting[:2] if column.setting else None
            departures += [f"{room}.{name} {value}" for name, value in changes.items() if (room, name) != varied]
    if column.setting and column.setting[0] in parts:
        room, name, value = column.setting
        settings.setdefault(room, {})[name] = value
    if column.dataset == "mini-imagenet":
        for room in ("policy", "retrieval"):
            if "per_class" in settings_of(parts[room]):
                settings.setdefault(room, {})["per_class"] = ASER_ON_MINI_IMAGENET
    return settings, departures


def _images_beside_the_memory(slots: int, protocol: Protocol) -> int:
    """What the queue (a byte a value) and the working copies (image and momentum) take, in images of float32."""
    queue: int = {**settings_of(StreamSummarizer), **protocol.summarize}["queue"]
    return protocol.classes_per_task * queue // 4 + 2 * protocol.classes_per_task * slots
