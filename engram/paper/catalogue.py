"""Every table and figure of the paper as data: its rows, its columns, and the paper's figures to show beside ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engram.base.errors import InputError
from engram.base.naming import suggest
from engram.paper.grid import Cell, Column, Grid, Row, SliceGrid
from engram.paper.scales import Scale
from engram.paper.targets import Targets

CIFAR = "cifar100"
DATASETS = ("mini-imagenet", CIFAR, "tiny-imagenet")
SLOTS = (1, 5, 10)

Plot = Literal["bars", "memory-size", "setting", "cost", "loss", "pictures", "tasks"]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Args:
        title: what the table or figure shows.
        grid: rows and columns of the table.
        targets: the paper's figures for this table, if it gives them as numbers.
        measures: measures to show of each result, by the paper's short names.
        plot: kind of plot to draw.
        seeds: number of seeds of each cell, if fewer than the scale's.
        small_seeds: number of seeds of each cell at the small scale, if fewer than the scale's.
    """

    title: str
    grid: Grid | SliceGrid
    targets: Targets | None = None
    measures: tuple[str, ...] = ("acc",)
    plot: Plot = "bars"
    seeds: int | None = None
    small_seeds: int | None = None

    def cells(self, scale: Scale) -> list[Cell]:
        """Return the cells of the table at a scale."""
        return self.grid.cells(scale)

    def seeds_at(self, scale: Scale) -> int:
        """Return the number of seeds of each cell at a scale."""
        fewer = self.small_seeds if scale.name == "small" else None
        return min(scale.seeds, fewer or self.seeds or scale.seeds)


SHUFFLED = ("fine-tune", "ewc++", "lwf", "a-gem", "er", "mir", "gss", "aser", "dvc", "rar")
"""Methods published with images shuffled within each task. All other methods, and all combinations with SSD, take
batches with one image of each class."""


def _rows(*methods: str) -> tuple[Row, ...]:
    return tuple(Row(method, method, stream="paper-shuffled" if method in SHUFFLED else "paper") for method in methods)


METHODS_COMPARED = (
    *("fine-tune", "iid-offline", "ewc++", "lwf", "a-gem", "er", "mir", "gss", "aser", "dvc", "scr", "ocm", "rar-s"),
    "scr+ssd",
)
"""The methods of the paper's main table, in its order."""


def _with_and_without_ssd(*methods: str) -> tuple[Row, ...]:
    return tuple(
        row for method in methods for row in (*_rows(method), Row(f"{method}+ssd", f"{method}+ssd", against=method))
    )


def _columns(*slots: int, dataset: str = CIFAR) -> tuple[Column, ...]:
    return tuple(Column(dataset, count) for count in slots)


def _over(role: str, name: str, *values: float, slots: tuple[int, ...] = (1,)) -> tuple[Column, ...]:
    return tuple(Column(CIFAR, count, (role, name, value)) for count in slots for value in values)


_GRADIENTS_ONLY = Row("scr+dynamic+summarizing", "scr+ssd", {"summarize": {"gamma": 0.0, "theta_past_images": 0}})
_SSD = Row("scr+ssd", "scr+ssd")

EXPERIMENTS: dict[str, Experiment] = {
    "main": Experiment(
        "Average end accuracy of all methods",
        Grid(
            tuple(
                Row("ocm", "ocm", not_on=("mini-imagenet",)) if row.method == "ocm" else row
                for row in _rows(*METHODS_COMPARED)
            ),
            tuple(Column(dataset, slots) for dataset in DATASETS for slots in SLOTS),
            reference="scr",
        ),
        Targets("table_main"),
        small_seeds=1,
    ),
    "components": Experiment(
        "What dynamic memory, summarizing and past assistance add",
        Grid((*_rows("scr", "scr+dynamic"), _GRADIENTS_ONLY, _SSD), _columns(*SLOTS), reference="scr"),
        Targets("table_component"),
    ),
    "curves": Experiment(
        "Accuracy after each task, of the net and of its average",
        Grid((*_rows("scr", "scr+dynamic"), _SSD), _columns(1), reference="scr"),
        Targets("table_component"),
        plot="tasks",
    ),
    "baselines": Experiment(
        "SSD on other methods",
        Grid(_with_and_without_ssd("er", "dvc", "scr"), _columns(*SLOTS)),
        Targets("table_baselines"),
    ),
    "memory-construction": Experiment(
        "SSD against other memories",
        Grid(_rows("scr", "scr+gss", "scr+aser", "scr+ssd"), _columns(*SLOTS), reference="scr"),
        Targets("table_memory_construction"),
    ),
    "more-iterations": Experiment(
        "More training steps on each batch",
        Grid(
            (
                _SSD,
                Row("scr+ssd x5", "scr+ssd", repeats=5),
                Row("scr+ssd x10", "scr+ssd", repeats=10),
                *_rows("rar-s"),
            ),
            _columns(*SLOTS),
            reference="rar-s",
        ),
        Targets("table_more_iterations"),
    ),
    "larger-memory": Experiment(
        "Larger memories: accuracy and forgetting",
        Grid(_with_and_without_ssd("scr", "rar", "rar-s"), _columns(20, 50)),
        Targets("table_larger_memory"),
        measures=("acc", "forgetting"),
    ),
    "slices": Experiment(
        "Classes distilled together or in separate groups",
        SliceGrid(groups=(1, 2, 5, 10)),
        Targets("table_slices"),
    ),
    "memory-size": Experiment(
        "Accuracy against the size of the memory",
        Grid(_with_and_without_ssd("er", "scr"), _columns(*SLOTS, 20, 50)),
        Targets("table_baselines"),
        plot="memory-size",
    ),
    "cost": Experiment(
        "Seconds per run, and accuracy",
        Grid((*_with_and_without_ssd("er", "dvc", "scr"), *_rows("rar-s")), _columns(*SLOTS)),
        Targets("table_baselines"),
        measures=("acc", "seconds"),
        plot="cost",
    ),
    "gamma": Experiment(
        "The coefficient of relationship matching",
        Grid((_SSD,), _over("summarize", "gamma", 0.0, 0.1, 1.0, 10.0)),
        plot="setting",
    ),
    "tau": Experiment(
        "The interval between rounds of summarizing",
        Grid((*_rows("scr"), _SSD), _over("summarize", "interval", 1, 2, 4, 6, 8, 10), reference="scr"),
        measures=("acc", "seconds"),
        plot="setting",
    ),
    "queue": Experiment(
        "Real images per class kept for summarizing",
        Grid((_SSD,), _over("summarize", "queue", 16, 32, 64, 128, slots=SLOTS)),
        plot="setting",
    ),
    "loss-curve": Experiment(
        "The loss of summarizing over the stream",
        Grid((_SSD,), _columns(*SLOTS)),
        Targets("table_component"),
        plot="loss",
    ),
    "pictures": Experiment(
        "First images of classes, images of the stream, and summaries",
        Grid((_SSD,), _columns(1), keep_originals=True),
        plot="pictures",
        seeds=1,
    ),
    "controls": Experiment(
        "scr with more images or with more steps",
        Grid(
            (
                *_rows("scr", "scr+ssd"),
                Row("scr, image bytes of scr+ssd", "scr", bytes_of_ssd=True),
                Row("scr, two steps per batch", "scr", repeats=2),
            ),
            _columns(*SLOTS),
            reference="scr",
        ),
        Targets("table_component"),
        measures=("acc", "seconds"),
        plot="cost",
    ),
}


def find_experiment(name: str) -> Experiment:
    """Return the table or figure of this name; an unknown name raises an InputError."""
    if name not in EXPERIMENTS:
        raise InputError(f"unknown table or figure {name!r}{suggest(name, ['list', *EXPERIMENTS])}")
    return EXPERIMENTS[name]
