"""Comparison tables on hand-made results."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from engram import InputError
from engram.base.settings import schema_of
from engram.experiment.config import NOT_COMPARED, RunConfig, RunOptions
from engram.experiment.result import RunResult
from engram.report.tables import compare, few_seeds, read_runs
from tests.helpers import made_result


def result(method: str, seed: int, accuracy: float, **changes: Any) -> RunResult:
    options: dict[str, Any] = {"tasks": 5, "classes_per_task": 2, "image_size": 16, "memory_size": 10, "repeats": 1}
    options |= {"slots_per_class": 1, "answer_from": "net"} | changes
    seconds = {"train": 2.0 + seed, "total": 3.0 + seed}
    return made_result(RunConfig(method, seed=seed, **options), accuracy, seconds=seconds)


def test_differences_are_paired_over_common_seeds() -> None:
    runs = [result("scr", seed, value) for seed, value in enumerate([50.0, 40.0, 60.0])]
    runs += [result("scr+ssd", seed, value) for seed, value in ((0, 55.0), (1, 47.0), (2, 63.0), (3, 90.0))]
    scr, ssd = compare(runs)
    assert scr.difference is None
    assert scr.accuracy.mean == pytest.approx(50)
    assert ssd.difference.mean == pytest.approx(5)
    assert ssd.difference.count == 3
    low, _ = stats.t.interval(0.95, 2, loc=5, scale=stats.sem([5, 7, 3]))
    assert ssd.difference.half_width == pytest.approx(5 - low)
    assert scr.seconds == {"train": pytest.approx(3), "total": pytest.approx(4)}


def test_protocols_are_kept_apart() -> None:
    rows = compare(
        [result("scr", 0, 50), result("scr", 0, 60, memory_size=20), result("scr+ssd", 0, 70, memory_size=20)]
    )
    assert [row.difference and row.difference.mean for row in rows] == [None, None, 10]


def test_variants_of_a_method_are_told_apart_by_their_settings() -> None:
    both = {"theta": {"width": 4}}
    rows = compare(
        [
            result("scr+ssd", 0, 50, settings=both),
            result("scr+ssd", 0, 60, settings=both | {"summarize": {"gamma": 0.0}}),
            result("scr+ssd", 0, 60, settings=both | {"summarize": {"gamma": 0.1, "queue": 8}}, boundary_gap=9),
            result("scr", 0, 60, boundary_gap=9),
        ]
    )
    assert [row.name for row in rows] == [
        "scr+ssd boundary_gap=50",
        "scr+ssd boundary_gap=50 summarize.gamma=0.0",
        "scr+ssd boundary_gap=9 summarize.gamma=0.1 summarize.queue=8",
        "scr",
    ]


def test_the_same_run_twice_counts_once_and_contradictions_are_refused() -> None:
    (row,) = compare([result("scr", 0, 50), result("scr", 0, 50)])
    assert row.accuracy.count == 1
    with pytest.raises(InputError, match="two runs of scr, seed 0"):
        compare([result("scr", 0, 50), result("scr", 0, 51)])


def test_few_common_seeds_are_warned_of_however_many_runs_there_are() -> None:
    runs = [result("scr", seed, 50.0 + seed) for seed in range(5)]
    assert few_seeds(compare(runs)) is None
    runs += [result("scr+ssd", seed, 60.0) for seed in range(3, 8)]
    assert "2 seeds are few" in (few_seeds(compare(runs)) or "")


def test_results_are_found_in_folders_and_lists(tmp_path: Path) -> None:
    for seed in range(2):
        (tmp_path / f"seed-{seed}").mkdir()
        (tmp_path / f"seed-{seed}" / "result.json").write_text(json.dumps(result("scr", seed, 1.0).to_dict()))
    (tmp_path / "list.json").write_text(json.dumps([result("scr", 7, 1.0).to_dict()]))
    (tmp_path / "table.json").write_text(
        json.dumps({"rows": [], "results": {"a/b/seed-8": result("scr", 8, 1.0).to_dict()}})
    )
    files = [tmp_path / "list.json", tmp_path / "table.json"]
    assert [run.result.seed for run in read_runs([tmp_path, *files])] == [0, 1, 7, 8]
    assert read_runs([tmp_path])[1].folder == tmp_path / "seed-1"
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no finished run"):
        read_runs([tmp_path / "empty"])
    (tmp_path / "empty" / "result.json").write_text('{"accuracy": 5}')
    with pytest.raises(InputError, match="no finished run over tasks"):
        read_runs([tmp_path / "empty"])
    (tmp_path / "empty" / "result.json").write_text('{"accuracy_matr')
    with pytest.raises(InputError, match=r"empty/result\.json is not valid JSON"):
        read_runs([tmp_path])


FORMAT_1 = {
    "method": "scr",
    "dataset": "digits",
    "stream": "strict",
    "tasks": 5,
    "classes": 10,
    "images_per_class": None,
    "batch": 10,
    "classes_per_task": 2,
    "epochs": 50,
    "skip_damaged": False,
    "class_order": "seed",
    "instance_order": "shuffled",
    "image_size": 16,
    "memory_size": None,
    "memory_budget": 9000,
    "memory_bytes": 8960,
    "memory_images": 35,
    "slots_per_class": 1,
    "repeats": 1,
    "classes_total": None,
    "boundary_gap": 50,
    "codec": "uint8",
    "settings": {"net": {"width": 8}},
    "seed": 3,
    "average_end_accuracy": 50.0,
    "accuracy_matrix": [[50.0]],
    "seconds": {"total": 3.0},
    "footprint": {"images": 8960, "total": 9999},
    "images_seen": 100,
    "summarize_rounds": 0,
}
"""A result as version 0.1.0 wrote it."""


def test_a_result_of_the_version_before_is_read_with_one_meaning_of_memory_bytes(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps(FORMAT_1))
    (run,) = read_runs([tmp_path / "result.json"])
    assert run.result.version == "0.1.0"
    assert run.result.config.options["memory_bytes"] == 9000
    assert run.result.footprint["images"] == 8960
    assert run.result.config.settings["net"] == {"width": 8}
    assert run.result.config.settings["scheme"]["augment"]["crop"] == "aligned"
    assert run.result.config.settings["scheme"]["augment"]["gray"] == 0.2
    assert RunResult.from_dict(json.loads(json.dumps(run.result.to_dict()))) == run.result


def test_a_result_that_does_not_say_what_it_is_of_is_refused_and_not_taken_for_another_protocol(tmp_path: Path) -> None:
    silent = {name: value for name, value in FORMAT_1.items() if name not in ("class_order", "codec")}
    (tmp_path / "old.json").write_text(json.dumps([FORMAT_1, silent]))
    with pytest.raises(InputError, match=r"old\.json.*it does not say class_order, codec"):
        read_runs([tmp_path / "old.json"])


COMMITTED = sorted((Path(__file__).parents[2] / "results").glob("*.json"))


@pytest.mark.parametrize("path", [path for path in COMMITTED if "accuracy_matrix" in path.read_text()], ids=str)
def test_every_result_we_keep_can_be_compared(path: Path) -> None:
    runs = read_runs([path])
    assert sum(len(row.seeds) for row in compare([run.result for run in runs])) == len(runs)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"targets": []}', "no results"),
        ("[1, 2]", "no results"),
        ('{"results": {}}', "no results"),
        ("[]", "no results"),
        ("{", "not valid JSON"),
    ],
)
def test_a_file_that_holds_no_results_is_refused_by_name(content: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text(content)
    with pytest.raises(InputError, match=rf"bench\.json.*{reason}"):
        read_runs([tmp_path / "bench.json"])


def test_runs_of_other_epochs_or_widths_are_not_taken_for_seeds_of_one() -> None:
    few, many = (result("iid-offline", seed, 50, epochs=epochs) for seed, epochs in enumerate((5, 50)))
    assert len(compare([few, many])) == 2
    five, six = (result("scr", seed, 50, tasks=1, classes_per_task=5 + seed) for seed in (0, 1))
    assert len(compare([five, six])) == 2
    assert len(compare([result("scr", 0, 50, epochs=3), result("scr", 1, 50)])) == 1, "no effect on a stream of tasks"


def test_every_option_that_changes_a_result_tells_runs_apart() -> None:
    plain = result("scr", 0, 50)
    other: dict[str, Any] = {
        "dataset": "cifar100",
        "stream": "iid",
        "memory_bytes": 9000,
        "slots_per_class": 3,
        "codec": "uint8",
        "precision": "bf16",
        "average": 0.9,
        "answer_from": "averaged",
        "class_order": "fixed",
        "instance_order": "kept",
        "skip_damaged": True,
        "fit": "pad",
    }
    for name, setting in schema_of(RunOptions).items():
        if name in NOT_COMPARED or name in ("epochs", "answer_from", "count_nets"):
            continue
        changes = {name: other.get(name, 77)}
        changes |= {"memory_size": None} if name in ("memory_bytes", "total_bytes") else {}
        changes |= {"answer_from": "averaged"} if name == "average" else {}
        changed = dataclasses.replace(plain, config=result("scr", 0, 50, **changes).config)
        assert changed.group != plain.group, setting.name
    lean, counting = (result("scr", 0, 50, memory_size=None, total_bytes=10**6, count_nets=on) for on in (False, True))
    assert lean.group != counting.group
    assert plain.group == dataclasses.replace(plain, config=plain.config.replace(seed=9, threads=2)).group
