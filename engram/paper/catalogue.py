"""Every table and figure of the paper, as data: which rows, which columns, which of its figures stand beside ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engram.core import InputError
from engram.naming import suggest
from engram.paper.grid import Cell, Column, Grid, Row, SliceGrid
from engram.paper.scales import Scale
from engram.paper.targets import Targets

CIFAR = "cifar100"
DATASETS = ("mini-imagenet", CIFAR, "tiny-imagenet")
SLOTS = (1, 5, 10)

Plot = Literal["bars", "memory-size", "setting", "cost", "loss", "pictures"]


@dataclass(frozen=True)
class Experiment:
    """A table or figure.

    Args:
        title: what it shows.
        grid: rows and columns.
        targets: the paper's figures of this table, if it gives them as numbers.
        measures: what of each result is shown, by the paper's short name.
        plot: how it is drawn.
        seeds: of each cell at the small scale, where they are fewer than that scale's.
    """

    title: str
    grid: Grid | SliceGrid
    targets: Targets | None = None
    measures: tuple[str, ...] = ("acc",)
    plot: Plot = "bars"
    seeds: int | None = None

    def cells(self, scale: Scale) -> list[Cell]:
        return self.grid.cells(scale)

    def seeds_at(self, scale: Scale) -> int:
        return self.seeds if self.seeds is not None and scale.name == "small" else scale.seeds


SHUFFLED = ("fine-tune", "ewc++", "lwf", "a-gem", "er", "mir", "gss", "aser", "dvc", "rar")
"""Methods published on batches plainly shuffled within a task; the others, and whatever is joined with SSD, take one
image of each class in a batch."""


def _rows(*methods: str) -> tuple[Row, ...]:
    return tuple(Row(method, method, stream="paper-shuffled" if method in SHUFFLED else "paper") for method in methods)


def _columns(*slots: int, dataset: str = CIFAR) -> tuple[Column, ...]:
    return tuple(Column(dataset, count) for count in slots)


def _over(room: str, name: str, *values: float) -> tuple[Column, ...]:
    return tuple(Column(CIFAR, 1, (room, name, value)) for value in values)


_GRADIENTS_ONLY = Row("scr+dynamic+summarizing", "scr+ssd", {"summarize": {"gamma": 0.0, "theta_past_images": 0}})
_SSD = Row("scr+ssd", "scr+ssd")

EXPERIMENTS: dict[str, Experiment] = {
    "main": Experiment(
        "Average end accuracy of all methods",
        Grid(
            _rows(
                *("fine-tune", "iid-offline", "ewc++", "lwf", "a-gem", "er", "mir", "gss", "aser", "dvc", "scr"),
                *("ocm", "rar-s", "scr+ssd"),
            ),
            tuple(Column(dataset, slots) for dataset in DATASETS for slots in SLOTS),
            reference="scr",
        ),
        Targets("table_main"),
        seeds=1,
    ),
    "components": Experiment(
        "What dynamic memory, summarizing and past assistance add",
        Grid((*_rows("scr", "scr+dynamic"), _GRADIENTS_ONLY, _SSD), _columns(*SLOTS), reference="scr"),
        Targets("table_component"),
    ),
    "baselines": Experiment(
        "SSD on other methods",
        Grid(_rows("er", "er+ssd", "dvc", "dvc+ssd", "scr", "scr+ssd"), _columns(*SLOTS)),
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
            reference="scr+ssd",
        ),
        Targets("table_more_iterations"),
    ),
    "larger-memory": Experiment(
        "Larger memories: accuracy and forgetting",
        Grid(_rows("scr", "scr+ssd", "rar", "rar+ssd", "rar-s", "rar-s+ssd"), _columns(20, 50), reference="scr"),
        Targets("table_larger_memory"),
        measures=("acc", "forgetting"),
    ),
    "slices": Experiment(
        "Classes distilled together, and in groups apart",
        SliceGrid(groups=(1, 2, 5, 10)),
        Targets("table_slices"),
    ),
    "memory-size": Experiment(
        "Accuracy against the size of the memory",
        Grid(_rows("er", "er+ssd", "scr", "scr+ssd"), _columns(*SLOTS)),
        Targets("table_baselines"),
        plot="memory-size",
    ),
    "cost": Experiment(
        "Seconds of a run by part, and accuracy",
        Grid(_rows("er", "er+ssd", "dvc", "dvc+ssd", "scr", "scr+ssd", "rar-s"), _columns(*SLOTS)),
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
        Grid((_SSD,), _over("summarize", "interval", 1, 2, 4, 6, 8, 10)),
        measures=("acc", "seconds"),
        plot="setting",
    ),
    "queue": Experiment(
        "Real images of each class kept for summarizing",
        Grid((_SSD,), _over("summarize", "queue", 16, 32, 64, 128)),
        plot="setting",
    ),
    "loss-curve": Experiment(
        "The loss of summarizing over the stream",
        Grid((_SSD,), _columns(*SLOTS)),
        Targets("table_component"),
        plot="loss",
    ),
    "pictures": Experiment(
        "First images of the classes, and the summaries they became",
        Grid((_SSD,), _columns(1), keep_originals=True),
        plot="pictures",
    ),
    "controls": Experiment(
        "What scr makes of the bytes and of the time that summarizing takes",
        Grid(
            (
                *_rows("scr", "scr+ssd"),
                Row("scr, bytes of scr+ssd", "scr", bytes_of_ssd=True),
                Row("scr x2, time of scr+ssd and more", "scr", repeats=2),
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
    if name not in EXPERIMENTS:
        raise InputError(f"unknown table or figure {name!r}{suggest(name, list(EXPERIMENTS))}")
    return EXPERIMENTS[name]
