"""Tables from finished runs: statistics, missing cells, remarks."""

import json
from pathlib import Path

import pytest
from scipy import stats

from engram.paper.catalogue import EXPERIMENTS, Experiment
from engram.paper.grid import Column, Grid, Row, finished_below
from engram.paper.outcome import gather
from engram.paper.plots import draw
from engram.paper.scales import SMALL
from engram.paper.targets import Targets

TWO = Experiment(
    "Two methods",
    Grid((Row("scr", "scr"), Row("scr+ssd", "scr+ssd")), (Column("cifar100", 1), Column("cifar100", 5)), "scr"),
    Targets("table_component"),
    measures=("acc", "forgetting"),
)


def finish(root: Path, method: str, size: int, seed: int, accuracy: float) -> None:
    folder = root / "cifar100" / f"{method}-k{size}" / f"seed-{seed}"
    folder.mkdir(parents=True)
    result = {
        "average_end_accuracy": accuracy,
        "average_forgetting_all_tasks": accuracy / 2,
        "seconds": {"total": 10.0},
    }
    (folder / "result.json").write_text(json.dumps(result))


SCR, SSD = [17.0, 21.5, 19.0, 20.0], [18.5, 22.0, 22.5, 20.5]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for seed in range(4):
        finish(tmp_path, "scr", 30, seed, SCR[seed])
        finish(tmp_path, "scr+ssd", 30, seed, SSD[seed])
    finish(tmp_path, "scr", 150, 0, 30.0)
    return tmp_path


def test_intervals_and_paired_differences_are_scipys(root: Path) -> None:
    table = gather("two", TWO, SMALL, finished_below(root), 4)
    entry = table.entries["scr+ssd", "cifar100 K=30", "acc"]
    assert entry.measured is not None
    assert entry.difference is not None
    low, high = stats.t.interval(0.95, 3, loc=sum(SSD) / 4, scale=stats.sem(SSD))
    assert entry.measured.mean == pytest.approx((low + high) / 2)
    assert entry.measured.half_width == pytest.approx((high - low) / 2)
    paired = stats.ttest_rel(SSD, SCR).confidence_interval(0.95)
    assert entry.difference.mean - entry.difference.half_width == pytest.approx(paired.low)
    assert entry.difference.mean + entry.difference.half_width == pytest.approx(paired.high)
    assert table.entries["scr", "cifar100 K=30", "acc"].difference is None
    assert table.entries["scr+ssd", "cifar100 K=30", "forgetting"].measured.mean == pytest.approx(sum(SSD) / 8)


def test_missing_cells_are_missing_and_partial_ones_partial(root: Path) -> None:
    table = gather("two", TWO, SMALL, finished_below(root), 4)
    assert (table.runs, table.missing) == (16, 7)
    text = table.to_markdown()
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| scr")}
    assert "| missing |" in text
    assert "30.0 (1 of 4 seeds)" in text
    assert "Partial: 7 of 16 runs are missing" in text
    assert "(paper 12.1)" in text
    assert set(rows) == {"scr", "scr+ssd"}
    content = table.to_json()
    assert content["complete"] is False
    assert [len(row["cells"]) for row in content["rows"]] == [4, 4]
    assert content["rows"][1]["cells"][2]["mean"] is None


def test_what_a_table_writes_makes_it_again(root: Path) -> None:
    table = gather("two", TWO, SMALL, finished_below(root), 3)
    content = json.loads(json.dumps(table.to_json()))
    assert "cifar100/scr+ssd-k30/seed-2" in content["results"]
    assert "cifar100/scr+ssd-k30/seed-3" not in content["results"]
    assert gather("two", TWO, SMALL, content["results"], content["seeds"]) == table


def test_too_few_seeds_are_said_to_be_too_few(root: Path) -> None:
    assert any("single seed" in remark for remark in gather("two", TWO, SMALL, finished_below(root), 1).remarks())
    finish(root, "scr+ssd", 150, 0, 31.0)
    for seed in (1, 2):
        finish(root, "scr", 150, seed, 30.0)
        finish(root, "scr+ssd", 150, seed, 31.0)
    assert any("3 seeds are few" in remark for remark in gather("two", TWO, SMALL, finished_below(root), 3).remarks())


def test_an_empty_table_draws_nothing(tmp_path: Path) -> None:
    table = gather("components", EXPERIMENTS["components"], SMALL, {}, 1)
    assert table.missing == table.runs == 12
    assert not draw(table, EXPERIMENTS["components"], SMALL, tmp_path, tmp_path / "plot.png")
    assert not (tmp_path / "plot.png").exists()
