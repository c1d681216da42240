"""The plans of the paper's tables and figures: rows, columns, runs, and the figures beside them."""

import json

import pytest

from engram.base.errors import InputError
from engram.experiment.config import RunConfig, changed_settings
from engram.paper.catalogue import EXPERIMENTS, find_experiment
from engram.paper.grid import Cell
from engram.paper.scales import FULL, SCALES, SMALL, SMOKE
from engram.paper.targets import published


def cell_of(name: str, row: str, column: str, scale: str = "full") -> Cell:
    cells = EXPERIMENTS[name].cells(SCALES[scale])  # type: ignore[index]
    return next(cell for cell in cells if (cell.row, cell.column) == (row, column))


def test_every_table_and_figure_of_the_paper_is_there() -> None:
    assert set(EXPERIMENTS) == {
        *("main", "components", "baselines", "memory-construction", "more-iterations", "larger-memory", "slices"),
        *("memory-size", "cost", "gamma", "tau", "queue", "loss-curve", "pictures", "controls", "curves"),
    }


@pytest.mark.parametrize("table", [name for name in published() if name.startswith("table_")])
def test_every_row_and_figure_the_paper_prints_stands_in_its_table(table: str) -> None:
    (experiment,) = {
        name: one
        for name, one in EXPERIMENTS.items()
        if one.targets and one.targets.table == table and one.plot == "bars"
    }.values()
    cells = experiment.cells(FULL)
    content = published()[table]
    assert {cell.row for cell in cells} == set(content["rows"])
    assert experiment.targets is not None
    shown = [experiment.targets.of(cell.row, *cell.key, measure) for cell in cells for measure in experiment.measures]
    printed = [float(number) for number in _means(content["rows"])]
    assert sorted(target[0] for target in shown if target) == sorted(printed)


def _means(value: object) -> list[float]:
    """Of the paper's nested rows: a list of two with a small second number is a mean and its ±."""
    if isinstance(value, dict):
        return [mean for inner in value.values() for mean in _means(inner)]
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], float) and value[1] <= 1.2:
        return [value[0]]
    if isinstance(value, list):
        return [mean for inner in value for mean in _means(inner)]
    return [] if value is None else [float(value)]  # type: ignore[arg-type]


def test_full_is_the_papers_protocol() -> None:
    config = cell_of("main", "scr+ssd", "cifar100 K=500").config
    assert config == RunConfig(
        "scr+ssd",
        dataset="cifar100",
        stream="paper",
        tasks=10,
        classes_per_task=10,
        images_per_class=500,
        memory_size=500,
        average=0.99,
        answer_from="net",
    )
    tiny = cell_of("main", "scr", "tiny-imagenet K=2000").config
    assert isinstance(tiny, RunConfig)
    assert (tiny.options["tasks"], tiny.options["memory_size"]) == (20, 2000)
    assert not any(cell.departures for one in EXPERIMENTS.values() for cell in one.cells(FULL))
    assert EXPERIMENTS["main"].seeds_at(FULL) == 10
    assert [EXPERIMENTS[name].seeds_at(SMALL) for name in ("main", "components", "pictures")] == [1, 3, 1]
    assert EXPERIMENTS["pictures"].seeds_at(FULL) == 1


def test_methods_published_on_shuffled_streams_run_on_them() -> None:
    streams = {
        cell.row: cell.config.options["stream"]
        for name in ("main", "baselines", "larger-memory")
        for cell in EXPERIMENTS[name].cells(FULL)
        if isinstance(cell.config, RunConfig)
    }
    shuffled = {row for row, stream in streams.items() if stream == "paper-shuffled"}
    assert shuffled == {"fine-tune", "ewc++", "lwf", "a-gem", "er", "mir", "gss", "aser", "dvc", "rar"}
    assert {streams[row] for row in ("scr", "scr+ssd", "er+ssd", "dvc+ssd", "rar-s", "ocm")} == {"paper"}
    assert streams["iid-offline"] == "iid"


def test_settings_of_rows_and_columns_arrive() -> None:
    only = cell_of("components", "scr+dynamic+summarizing", "cifar100 K=100").config
    assert isinstance(only, RunConfig)
    assert changed_settings(only) == {"summarize.gamma": 0.0, "summarize.theta_past_images": 0}
    gamma = cell_of("gamma", "scr+ssd", "cifar100 K=100, gamma 10.0").config
    assert isinstance(gamma, RunConfig)
    assert changed_settings(gamma) == {"summarize.gamma": 10.0}
    mini = cell_of("main", "aser", "mini-imagenet K=100").config
    assert isinstance(mini, RunConfig)
    assert changed_settings(mini) == {"policy.per_class": 3, "retrieval.per_class": 3}


def test_controls_give_scr_the_bytes_and_the_time() -> None:
    """At K=100: 10 classes × 64 queued bytes-images are 160 float images, and 10 working copies twice are 20."""
    bytes_ = cell_of("controls", "scr, image bytes of scr+ssd", "cifar100 K=100").config
    time = cell_of("controls", "scr, two steps per batch", "cifar100 K=100").config
    assert isinstance(bytes_, RunConfig)
    assert isinstance(time, RunConfig)
    assert bytes_.options["memory_size"] == 280
    assert (time.options["memory_size"], time.options["repeats"]) == (100, 2)


def test_departures_of_smaller_scales_are_named() -> None:
    cell = cell_of("main", "rar-s", "cifar100 K=30", "small")
    assert isinstance(cell.config, RunConfig)
    assert cell.config.options["repeats"] == 5
    assert cell.departures == ("5 repeats instead of 10",)
    iid = cell_of("main", "iid-offline", "cifar100 K=30", "small")
    assert iid.departures == ("10 epochs instead of 50, batches of 128",)


@pytest.mark.parametrize("scale", [SMOKE, SMALL, FULL], ids=lambda scale: scale.name)
def test_one_configuration_has_one_folder_and_one_folder_one_configuration(scale: object) -> None:
    by_folder: dict[str, set[str]] = {}
    by_config: dict[str, set[str]] = {}
    for experiment in EXPERIMENTS.values():
        for cell in experiment.cells(scale):  # type: ignore[arg-type]
            facts = cell.config.to_dict() if isinstance(cell.config, RunConfig) else vars(cell.config)
            folder, config = str(cell.folder(0)), json.dumps(facts)
            by_folder.setdefault(folder, set()).add(config)
            by_config.setdefault(config, set()).add(folder)
    assert all(len(configs) == 1 for configs in by_folder.values())
    assert all(len(folders) == 1 for folders in by_config.values())


def test_memoryless_methods_stand_in_one_column_a_data_set() -> None:
    cells = [cell for cell in EXPERIMENTS["main"].cells(FULL) if cell.row == "lwf"]
    assert [cell.column for cell in cells] == ["mini-imagenet K=100", "cifar100 K=100", "tiny-imagenet K=200"]


def test_ocm_is_not_run_where_the_paper_has_no_figure_of_it() -> None:
    datasets = {cell.key[0] for cell in EXPERIMENTS["main"].cells(FULL) if cell.row == "ocm"}
    assert datasets == {"cifar100", "tiny-imagenet"}


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'components'"):
        find_experiment("component")
