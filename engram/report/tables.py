"""Tables over finished runs: means with intervals over seeds, and differences on common seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engram.base.errors import InputError
from engram.evaluation.metrics import Interval, warning_of_few
from engram.experiment.result import RunResult, is_run_result, read_json

Protocol = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A group of runs that differ in their seed only.

    Args:
        name: name of the method, and the settings in which it differs from other rows of the same method.
        protocol: the options that other runs must share to be compared.
        seeds: seeds of the runs.
        accuracy: mean accuracy over all tasks at the end.
        forgetting: forgetting over all tasks but the last.
        forgetting_all_tasks: forgetting as the paper publishes it.
        learning: mean accuracy on each task right after it was learned.
        difference: accuracy minus that of the first row of the same protocol, paired over common seeds.
        seconds: mean seconds of a run, by part and in total.
        image_bytes: bytes of the images in memory at the end.
        total_bytes: bytes of all state at the end.
    """

    name: str
    protocol: Protocol
    seeds: tuple[int, ...]
    accuracy: Interval
    forgetting: Interval
    forgetting_all_tasks: Interval
    learning: Interval
    difference: Interval | None
    seconds: dict[str, float]
    image_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class Run:
    """A finished run, and its folder if it has one."""

    result: RunResult
    folder: Path | None


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Return the runs in run folders, folders of runs, or JSON files of results, as `engram paper` writes too.

    In folders, results that are not of runs over tasks are skipped; given as a file, they are refused. Within a folder,
    plain methods come before combinations, so that combinations are compared with a plain method.
    """
    runs: list[Run] = []
    for path in paths:
        found = [Run(result, None) for result in _read_file(path)] if path.is_file() else runs_below(path)
        if not found:
            raise InputError(f"no finished run over tasks under {path}: a result.json is expected there")
        runs += found
    return runs


def runs_below(folder: Path) -> list[Run]:
    """Return the finished runs below a folder; the list may be empty."""
    contents = ((file, read_json(file)) for file in sorted(folder.rglob("result.json")))
    found = [
        Run(RunResult.from_dict(content, str(file)), file.parent)
        for file, content in contents
        if is_run_result(content)
    ]
    return sorted(found, key=lambda run: run.result.method.count("+"))


def _read_file(path: Path) -> list[RunResult]:
    content = read_json(path, follow=True)
    if isinstance(content, dict) and isinstance(content.get("results"), dict):
        content = list(content["results"].values())
    results = content if isinstance(content, list) else [content]
    if not results or not all(map(is_run_result, results)):
        raise InputError(
            f"{path} holds no results of runs over tasks: give a result.json, a list of such, or a folder of runs"
        )
    return [RunResult.from_dict(result, str(path)) for result in results]


def describe_protocol(protocol: Protocol) -> str:
    """Return a protocol in words; options that are None or False are left out."""
    return ", ".join(f"{name} {value}" for name, value in protocol.items() if value not in (None, False))


def compare(results: Sequence[RunResult]) -> list[Row]:
    """Return one row for each group of runs that differ in their seed only, in order of appearance."""
    groups = _group_runs(results)
    first: dict[str, dict[int, RunResult]] = {}
    variants: dict[tuple[str, str], list[RunResult]] = {}
    for runs in groups.values():
        variants.setdefault(_compared_with(next(iter(runs.values()))), []).append(next(iter(runs.values())))
    rows = []
    for runs in groups.values():
        values = list(runs.values())
        reference = first.setdefault(str(values[0].protocol), runs)
        common = sorted(runs.keys() & reference.keys())
        differences = [runs[seed].average_end_accuracy - reference[seed].average_end_accuracy for seed in common]
        rows.append(
            Row(
                name=_name(values[0], variants[_compared_with(values[0])]),
                protocol=values[0].protocol,
                seeds=tuple(sorted(runs)),
                accuracy=Interval.of([run.average_end_accuracy for run in values]),
                forgetting=Interval.of([run.evaluation.average_forgetting for run in values]),
                forgetting_all_tasks=Interval.of([run.evaluation.average_forgetting_all_tasks for run in values]),
                learning=Interval.of([run.evaluation.learning_accuracy for run in values]),
                difference=Interval.of(differences) if reference is not runs and common else None,
                seconds={
                    part: sum(run.seconds[part] for run in values) / len(values)
                    for part in values[0].seconds
                    if all(part in run.seconds for run in values)
                },
                image_bytes=max(run.footprint["images"] for run in values),
                total_bytes=max(run.footprint["total"] for run in values),
            )
        )
    return rows


def few_seeds(rows: Sequence[Row]) -> str | None:
    """Return a warning if means or differences of these rows are over few seeds."""
    shown = [interval for row in rows for interval in (row.accuracy, row.difference) if interval]
    return warning_of_few(interval.count for interval in shown)


def _group_runs(results: Sequence[RunResult]) -> dict[str, dict[int, RunResult]]:
    """Return runs by group and seed, in order of appearance; runs of the same seed with other results are refused."""
    groups: dict[str, dict[int, RunResult]] = {}
    for result in results:
        runs = groups.setdefault(result.group, {})
        if runs.setdefault(result.seed, result).average_end_accuracy != result.average_end_accuracy:
            raise InputError(f"two runs of {result.method}, seed {result.seed}, have different results: give only one")
    return groups


def _compared_with(result: RunResult) -> tuple[str, str]:
    return str(result.protocol), result.method


def _name(result: RunResult, variants: Sequence[RunResult]) -> str:
    """Return the name of the method, and the settings in which its variants differ."""
    others = [variant.variant for variant in variants]
    apart = [
        f"{name}={value}" for name, value in result.variant.items() if any(other.get(name) != value for other in others)
    ]
    return " ".join([result.method, *apart])
