"""Tables from finished runs: statistics, missing cells, remarks."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
from scipy import stats

from engram import Evaluation
from engram.experiment.config import RunConfig, changed_settings, of_version
from engram.experiment.result import RunResult
from engram.paper import plots
from engram.paper.catalogue import EXPERIMENTS, Experiment
from engram.paper.grid import Cell, Column, Grid, Row, finished_below, read_any_result
from engram.paper.outcome import gather
from engram.paper.plots import draw
from engram.paper.scales import FULL, SMALL, SMOKE
from engram.paper.targets import Targets
from engram.persistence.migration import departs_from_practice
from tests.helpers import made_result

ROOT = Path(__file__).parents[2]
TWO = Experiment(
    "Two methods",
    Grid((Row("scr", "scr"), Row("scr+ssd", "scr+ssd")), (Column("cifar100", 1), Column("cifar100", 5)), "scr"),
    Targets("table_component"),
    measures=("acc", "forgetting"),
)


def finish(root: Path, method: str, size: int, seed: int, accuracy: float) -> None:
    (cell,) = [cell for cell in TWO.cells(SMALL) if (cell.row, cell.column) == (method, f"cifar100 K={size}")]
    assert isinstance(cell.config, RunConfig)
    folder = root / cell.folder(seed)
    folder.mkdir(parents=True)
    result = made_result(cell.config.replace(seed=seed), accuracy)
    (folder / "result.json").write_text(json.dumps(result.to_dict()))


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
    assert "(paper 12.1 ± 0.4)" in text
    assert set(rows) == {"scr", "scr+ssd"}
    content = table.to_json()
    assert content["complete"] is False
    assert [len(row["cells"]) for row in content["rows"]] == [4, 4]
    assert content["rows"][1]["cells"][2]["mean"] is None


def test_what_a_table_writes_makes_it_again(root: Path) -> None:
    table = gather("two", TWO, SMALL, finished_below(root), 4)
    content = json.loads(json.dumps(table.to_json()))
    assert len(content["results"]) == 9
    assert "cifar100/scr+ssd-k30/seed-2" in content["results"]
    again = {folder: read_any_result(result, folder) for folder, result in content["results"].items()}
    assert gather("two", TWO, SMALL, again, content["seeds"]) == table


def test_too_few_seeds_are_said_to_be_too_few(root: Path) -> None:
    assert any("One seed" in remark for remark in gather("two", TWO, SMALL, finished_below(root), 1).remarks())
    finish(root, "scr+ssd", 150, 0, 31.0)
    for seed in (1, 2):
        finish(root, "scr", 150, seed, 30.0)
        finish(root, "scr+ssd", 150, seed, 31.0)
    assert any("3 seeds are few" in remark for remark in gather("two", TWO, SMALL, finished_below(root), 3).remarks())


def test_a_result_of_another_configuration_is_no_result_of_the_cell(root: Path) -> None:
    cell = TWO.cells(SMALL)[0]
    changes: list[dict[str, Any]] = [
        {"stream": "strict"},
        {"memory_size": 31},
        {"settings": {"net": {"width": 8}}},
        {"tasks": 4},
    ]
    for change in changes:
        finished = finished_below(root)
        assert len(cell.results(finished, 4)) == 4
        result = finished["cifar100/scr-k30/seed-2"]
        assert isinstance(result, RunResult)
        finished["cifar100/scr-k30/seed-2"] = dataclasses.replace(result, config=result.config.replace(**change))
        assert sorted(cell.results(finished, 4)) == [0, 1, 3], change


def test_a_limit_in_bytes_is_recognized_by_the_limit_of_its_result() -> None:
    config = RunConfig("scr", dataset="cifar100", memory_bytes="300KB")
    cell = Cell("scr", "bytes", config)
    folder = cell.folder(0).as_posix()
    assert cell.results({folder: made_result(config.replace(tasks=10), 1.0)}, 1)
    assert not cell.results({folder: made_result(config.replace(memory_bytes=200_000), 1.0)}, 1)


def test_results_of_the_version_before_are_shown_and_said_to_be_of_it(root: Path) -> None:
    cell = TWO.cells(SMALL)[0]
    assert isinstance(cell.config, RunConfig)
    old = of_version(cell.config, "0.1.0")
    assert old.settings["scheme"]["augment"]["crop"] == "aligned"
    finished = finished_below(root) | {cell.folder(0).as_posix(): made_result(old, 1.0, version="0.1.0")}
    assert len(cell.results(finished, 4)) == 4
    remarks = gather("two", TWO, SMALL, finished, 4).remarks()
    assert any(remark.endswith("(docs/method.md): scr.") for remark in remarks)
    assert not any("0.1.0" in remark for remark in gather("two", TWO, SMALL, finished_below(root), 4).remarks())
    assert not cell.results({cell.folder(0).as_posix(): made_result(old, 1.0)}, 1)


@pytest.mark.parametrize(
    ("method", "settings", "departs"),
    [
        ("dvc", {"augment.crop": "aligned", "augment.jitter_kind": "additive"}, True),
        ("aser", {"passes": "joint-mean"}, True),
        ("ewc++", {}, True),
        ("rar+ssd", {}, True),
        ("er", {}, False),
    ],
)
def test_results_of_the_version_before_keep_what_it_ran(method: str, settings: dict[str, str], departs: bool) -> None:
    """Its files name neither the crop, nor the jitter, nor ASER's passes: they are read as that version ran them."""
    config = RunConfig(method, dataset="cifar100", stream="paper-shuffled", memory_size=30)
    assert changed_settings(of_version(config, "0.1.0")) == {
        f"scheme.{name}": value for name, value in settings.items()
    }
    assert departs_from_practice(method, "0.1.0") is departs
    assert not departs_from_practice(method, "0.2.0")
    of_before = [
        RunResult.from_dict(result)
        for result in json.loads((ROOT / "results" / "paper-small-main.json").read_text())["results"].values()
        if result["method"] == method
    ]
    assert all(result.variant.items() >= changed_settings(of_version(config, "0.1.0")).items() for result in of_before)
    assert of_before or method == "rar+ssd"


def test_both_readings_of_a_run_are_shown_and_paired(root: Path) -> None:
    """Three seeds of one cell have an averaged net, two of the reference: differences are over these two."""
    cells = {cell.row: cell for cell in TWO.cells(SMALL) if cell.column == "cifar100 K=30"}
    finished = finished_below(root)
    for row, averages in (("scr", [20.0, 24.0]), ("scr+ssd", [23.0, 28.0, 25.0])):
        for seed, average in enumerate(averages):
            folder = cells[row].folder(seed).as_posix()
            readings = finished[folder].readings | {"averaged": Evaluation([[50.0, None], [average, average]])}
            finished[folder] = dataclasses.replace(finished[folder], readings=readings)
    table = gather("two", TWO, SMALL, finished, 4)
    entry = table.entries["scr+ssd", "cifar100 K=30", "averaged"]
    assert (entry.measured.mean, entry.seeds, entry.missing) == (pytest.approx(76 / 3), 3, 1)
    assert (entry.difference.mean, entry.difference.count) == (3.5, 2)
    assert table.entries["scr+ssd", "cifar100 K=30", "acc"].seeds == 4
    assert "| end accuracy % of the averaged net |" in table.figures()
    assert "averaged" not in gather("two", TWO, SMALL, finished_below(root), 4).measures


def test_curves_show_both_readings_and_the_papers_end(tmp_path: Path) -> None:
    experiment, finished = EXPERIMENTS["curves"], {}
    for cell in experiment.cells(FULL):
        for seed in range(2):
            readings = {name: Evaluation([[40.0 + seed, None], [9.0, 9.0 + seed]]) for name in ("net", "averaged")}
            config = cell.config.replace(seed=seed)
            finished[cell.folder(seed).as_posix()] = made_result(config, 9.0, readings=readings)
    table = gather("curves", experiment, FULL, finished, 3)
    assert len(table.results) == 6
    figure, axes = plt.subplots()
    assert plots._after_each_task(axes, table, experiment, FULL, tmp_path)
    assert [line.get_linestyle() for line in axes.lines if len(line.get_xdata()) == 2] == ["-", "--"] * 3
    marked = sorted(float(line.get_ydata()[0]) for line in axes.lines if line.get_marker() == "x")
    assert marked == [9.0, 10.7, 12.1]
    plt.close(figure)
    assert draw(table, experiment, FULL, tmp_path, tmp_path / "curves.png")


def test_columns_stand_in_the_papers_order() -> None:
    table = gather("main", EXPERIMENTS["main"], FULL, {}, 1)
    assert table.columns == tuple(
        f"{dataset} K={size}"
        for dataset, sizes in (
            ("mini-imagenet", (100, 500, 1000)),
            ("cifar100", (100, 500, 1000)),
            ("tiny-imagenet", (200, 1000, 2000)),
        )
        for size in sizes
    )


def test_methods_are_compared_with_themselves_without_ssd_and_streams_are_told_apart() -> None:
    pairs = {cell.row: cell.against for cell in EXPERIMENTS["baselines"].cells(FULL)}
    assert pairs == {"er": None, "er+ssd": "er", "dvc": None, "dvc+ssd": "dvc", "scr": None, "scr+ssd": "scr"}
    remarks = " ".join(gather("baselines", EXPERIMENTS["baselines"], FULL, {}, 1).remarks())
    assert "er+ssd to er, dvc+ssd to dvc, scr+ssd to scr" in remarks
    assert "The difference of er+ssd, dvc+ssd includes the difference between these two streams" in remarks


def test_remarks_say_where_the_protocol_is_not_the_papers() -> None:
    remarks = gather("main", EXPERIMENTS["main"], SMALL, {}, 1).remarks()
    assert "Departure: scr+ssd on mini-imagenet, tiny-imagenet: summarize.queue 16." in remarks
    assert (
        "Here 3 tasks of 10 classes of cifar100, 300 images each; in the paper 10 tasks of 10 classes of cifar100, "
        "500 images each." in remarks
    )
    queue = gather("queue", EXPERIMENTS["queue"], SMOKE, {}, 1).remarks()
    assert not any("summarize.queue" in remark for remark in queue)


def test_a_difference_over_fewer_seeds_says_so(root: Path) -> None:
    finish(root, "scr+ssd", 150, 0, 31.0)
    finish(root, "scr+ssd", 150, 1, 33.0)
    text = gather("two", TWO, SMALL, finished_below(root), 2).to_markdown()
    assert "32.0 ± 12.7 [+1.0 over 1 of them]" in text
    assert "Finished but not shown: 4 runs" in text


def test_runs_that_cells_share_are_counted_once() -> None:
    """The figure over τ shows scr, which has no τ, in each of its six columns."""
    table = gather("tau", EXPERIMENTS["tau"], SMALL, {}, 3)
    assert len(table.entries) == 2 * 6 * 2
    assert table.runs == (1 + 6) * 3


def test_an_empty_table_draws_nothing(tmp_path: Path) -> None:
    table = gather("components", EXPERIMENTS["components"], SMALL, {}, 1)
    assert table.missing == table.runs == 12
    assert not draw(table, EXPERIMENTS["components"], SMALL, tmp_path, tmp_path / "plot.png")
    assert not (tmp_path / "plot.png").exists()


def test_a_wide_table_of_a_few_rows_has_its_columns_as_lines() -> None:
    table = gather("queue", EXPERIMENTS["queue"], SMALL, {}, 1)
    lines = [line for line in table.figures().splitlines() if line.startswith("|")]
    assert lines[0] == "| end accuracy % | scr+ssd |"
    assert lines[2] == "| cifar100 K=30, queue 16 | missing |"
    assert len(lines) == 2 + 12
    wide = gather("main", EXPERIMENTS["main"], FULL, {}, 1).figures().splitlines()[0]
    assert wide.count("K=") == 9


def test_what_no_protocol_can_make_comparable_is_said_at_every_scale() -> None:
    for scale in (SMALL, FULL):
        assert (
            "Tiny-ImageNet come from images whose pixels were scrambled"
            in gather("main", EXPERIMENTS["main"], scale, {}, 1).to_markdown()
        )
    assert "scrambled" not in gather("components", EXPERIMENTS["components"], FULL, {}, 1).to_markdown()


def test_groups_that_a_scale_has_too_few_classes_for_are_a_departure() -> None:
    text = gather("slices", EXPERIMENTS["slices"], SMOKE, {}, 1).to_markdown()
    assert "10x10: 4 groups instead of 10" in text
    assert "50x2: 2 groups" not in text


def test_each_precision_has_runs_and_a_table_of_its_own(tmp_path: Path) -> None:
    half = SMALL.computing_in("bf16")
    assert (SMALL.folder, half.folder) == ("small", "small-bf16")
    assert {cell.config.options["precision"] for cell in TWO.cells(half)} == {"bf16"}  # type: ignore[union-attr]
    assert FULL.computing_in("bf16").published
    assert not half.published
    text = gather("two", TWO, half, {}, 1).to_markdown()
    assert "--scale small --precision bf16" in text
    assert "compute in bf16" in text
    assert "bf16" not in gather("two", TWO, SMALL, {}, 1).to_markdown()
