"""Tables over finished runs: means with intervals over seeds, and differences on common seeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engram.errors import InputError
from engram.experiment.metrics import Interval, warning_of_few

Result = dict[str, Any]

PROTOCOL = (
    "dataset",
    "stream",
    "tasks",
    "classes",
    "images_per_class",
    "batch",
    "class_order",
    "instance_order",
    "image_size",
    "memory_size",
    "memory_budget",
    "classes_per_task",
    "skip_damaged",
    "epochs",
)
"""What two runs must share to be compared."""
VARIANT = ("repeats", "slots_per_class", "classes_total", "boundary_gap", "codec")
"""What tells variants of a method apart, besides the settings of its parts."""


@dataclass(frozen=True)
class Row:
    """One group of runs that differ in their seed only."""

    name: str
    protocol: tuple[Any, ...]
    seeds: tuple[int, ...]
    accuracy: Interval
    forgetting: Interval
    """Over all tasks but the last."""
    forgetting_all_tasks: Interval
    """As the paper publishes it."""
    learning: Interval
    """Accuracy on each task right after it was learned."""
    difference: Interval | None
    """Accuracy minus that of the first row of the same protocol, paired over common seeds."""
    seconds: dict[str, float]
    """Mean over runs, by part and in total."""
    memory_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class Run:
    """A finished run and where it is, if it is a folder."""

    result: Result
    folder: Path | None


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """The runs in these run folders, folders of runs, or JSON files of results, as `engram paper` writes too.

    In folders what is no run over tasks is passed over, as a file it is refused; of a folder plain methods come before
    their combinations, so that the others are compared with one of them.
    """
    runs: list[Run] = []
    for path in paths:
        found = [Run(result, None) for result in _read_file(path)] if path.is_file() else runs_below(path)
        if not found:
            raise InputError(f"no finished run over tasks under {path}: a result.json is expected there")
        runs += found
    return runs


def runs_below(folder: Path) -> list[Run]:
    """Those of `read_runs`, or none."""
    files = sorted(folder.rglob("result.json"))
    found = [Run(result, file.parent) for file in files if _is_run(result := read_json(file), file)]
    return sorted(found, key=lambda run: run.result["method"].count("+"))


def _read_file(path: Path) -> list[Result]:
    content = read_json(path)
    if isinstance(content, dict) and isinstance(content.get("results"), dict):
        content = list(content["results"].values())
    results: list[Result] = content if isinstance(content, list) else [content]
    if not results or not all(_is_run(result, path) for result in results):
        raise InputError(
            f"{path} holds no results of runs over tasks: give a result.json, a list of such, or a folder of runs"
        )
    return results


def read_json(path: Path) -> Any:
    """What the file holds; one that is damaged is refused by name."""
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise InputError(f"{path} is no JSON: {error}") from error


def _is_run(result: Any, path: Path) -> bool:
    """Whether it is of a run over tasks; one that does not say what it was a run of is refused."""
    if not isinstance(result, dict) or "accuracy_matrix" not in result:
        return False
    unsaid = [name for name in (*PROTOCOL, *VARIANT) if name not in result]
    if unsaid:
        raise InputError(f"{path}: the result does not say {', '.join(unsaid)}: it is of another version, run it again")
    return True


Group = tuple[tuple[Any, ...], str, str]
"""Protocol, method and variant of runs that differ in their seed only."""


def group_of(result: Result) -> Group:
    variant = json.dumps([result["settings"], *(result[name] for name in VARIANT)], sort_keys=True)
    return protocol_of(result), result["method"], variant


def protocol_of(result: Result) -> tuple[Any, ...]:
    """The values of `PROTOCOL`: those that say nothing, being the default or without effect, are None."""
    known = {name: result[name] for name in PROTOCOL}
    if known["classes_per_task"] == -(-result["classes"] // result["tasks"]):
        known["classes_per_task"] = None
    if not known["skip_damaged"]:
        known["skip_damaged"] = None
    if result["stream"] != "iid":
        known["epochs"] = None
    return tuple(known.values())


def _group_runs(results: Sequence[Result]) -> dict[Group, dict[int, Result]]:
    """Runs by `group_of`, in order of appearance, and by seed."""
    groups: dict[Group, dict[int, Result]] = {}
    for result in results:
        runs = groups.setdefault(group_of(result), {})
        if _accuracy(runs.setdefault(result["seed"], result)) != _accuracy(result):
            raise InputError(f"two runs of {result['method']}, seed {result['seed']}, differ but should not: give one")
    return groups


def compare(results: Sequence[Result]) -> list[Row]:
    """One row a method, settings and protocol (`group_of`), in order of appearance."""
    groups = _group_runs(results)
    rows: list[Row] = []
    first: dict[tuple[Any, ...], dict[int, Result]] = {}
    variants: dict[tuple[Any, ...], list[Result]] = {}
    for (protocol, method, _), runs in groups.items():
        variants.setdefault((protocol, method), []).append(next(iter(runs.values())))
    for (protocol, method, _), runs in groups.items():
        reference = first.setdefault(protocol, runs)
        common = sorted(runs.keys() & reference.keys())
        differences = [_accuracy(runs[seed]) - _accuracy(reference[seed]) for seed in common]
        values = list(runs.values())
        rows.append(
            Row(
                name=_name(values[0], variants[protocol, method]),
                protocol=protocol,
                seeds=tuple(sorted(runs)),
                accuracy=Interval.of([_accuracy(run) for run in values]),
                forgetting=Interval.of([run["average_forgetting"] for run in values]),
                forgetting_all_tasks=Interval.of([run["average_forgetting_all_tasks"] for run in values]),
                learning=Interval.of([run["learning_accuracy"] for run in values]),
                difference=Interval.of(differences) if reference is not runs and common else None,
                seconds={
                    part: sum(run["seconds"][part] for run in values) / len(values) for part in values[0]["seconds"]
                },
                memory_bytes=max(run["memory_bytes"] for run in values),
                total_bytes=max(run["footprint"]["total"] for run in values),
            )
        )
    return rows


def few_seeds(rows: Sequence[Row]) -> str | None:
    """What must be said of these rows, if it must."""
    shown = [interval for row in rows for interval in (row.accuracy, row.difference) if interval]
    return warning_of_few(interval.count for interval in shown)


def _name(result: Result, variants: Sequence[Result]) -> str:
    """The method, and what it sets that not all of its variants set alike."""
    told = [_told(variant) for variant in variants]
    apart = [
        f"{name}={value}" for name, value in _told(result).items() if any(other.get(name) != value for other in told)
    ]
    return " ".join([result["method"], *apart])


def _told(result: Result) -> dict[str, Any]:
    settings = result["settings"].items()
    rooms = {f"{room}.{name}": value for room, own in settings for name, value in own.items()}
    return {name: result[name] for name in VARIANT} | rooms


def _accuracy(result: Result) -> float:
    return float(result["average_end_accuracy"])
