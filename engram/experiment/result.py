"""The result of a run: its complete configuration, and everything that was measured."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engram.base.errors import InputError
from engram.evaluation import Evaluation
from engram.experiment.config import PROTOCOL, RunConfig, changed_settings
from engram.persistence.files import read_plain
from engram.persistence.migration import migrate_result
from engram.persistence.parsing import parse_json

FORMAT = 2
LARGEST = 1 << 26
"""Most bytes of a JSON file that is read."""
LARGEST_NUMBER = 1e15
"""Bound of the numbers in a result."""


@dataclass(frozen=True)
class RunResult:
    """The result of one run.

    Args:
        config: the configuration, with everything filled in.
        readings: evaluations by reading: "net" for the trained net, and "averaged" if an averaged net was kept.
        classes: number of classes in the stream.
        images_seen: number of images learned from.
        memory_images: number of images in the memory at the end; None in results of early versions.
        summarize_rounds: number of summarizing rounds.
        seconds: seconds spent, by part and in total.
        footprint: bytes held at the end, by part and in total.
        prequential: prequential accuracies (test, then train), if they were asked for.
        version: version of engram that did the run.
    """

    config: RunConfig
    readings: dict[str, Evaluation]
    classes: int
    images_seen: int
    memory_images: int | None
    summarize_rounds: int
    seconds: dict[str, float]
    footprint: dict[str, int]
    prequential: dict[str, Any] | None
    version: str

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation of the net that the learner answers from."""
        return self.readings[self.config.options["answer_from"] or "net"]

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.config.method

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.config.options["seed"]

    @property
    def average_end_accuracy(self) -> float:
        """Mean accuracy over all tasks at the end."""
        return self.evaluation.average_end_accuracy

    @property
    def protocol(self) -> dict[str, Any]:
        """The options that another run must share to be compared with this one."""
        known = self.config.identity()
        return {name: known[name] for name in PROTOCOL}

    @property
    def variant(self) -> dict[str, Any]:
        """The options outside the protocol and the settings that are not default; they tell runs of a method apart."""
        known = self.config.identity()
        options = {name: value for name, value in known.items() if name not in (*PROTOCOL, "method", "settings")}
        return options | changed_settings(self.config)

    @property
    def group(self) -> str:
        """A text that is the same for two runs if they differ in nothing but their seed, and different otherwise."""
        return json.dumps(self.config.identity(), sort_keys=True)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data. The metrics at the top level are those of `evaluation`."""
        return {
            "format": FORMAT,
            "version": self.version,
            "config": self.config.to_dict(),
            **self.evaluation.to_dict(),
            "readings": {reading: evaluation.to_dict() for reading, evaluation in self.readings.items()},
            "classes": self.classes,
            "images_seen": self.images_seen,
            "memory_images": self.memory_images,
            "summarize_rounds": self.summarize_rounds,
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "footprint": self.footprint,
            "prequential": self.prequential,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], source: str = "the result") -> RunResult:
        """Return the result that `to_dict` gave, in this version or an earlier one.

        Args:
            content: the plain data.
            source: name of the data, for messages.
        """
        try:
            content = migrate_result(content)
            config = RunConfig.from_dict(content["config"])
            readings = content.get("readings") or {"net": {"accuracy_matrix": content["accuracy_matrix"]}}
            return cls(
                config=config,
                readings=_readings(readings, config),
                classes=int(_number(content["classes"], "classes")),
                images_seen=int(_number(content["images_seen"], "images_seen")),
                memory_images=_count_or_none(content.get("memory_images")),
                summarize_rounds=int(_number(content["summarize_rounds"], "summarize_rounds")),
                seconds={name: float(value) for name, value in _numbers(content, "seconds", "total").items()},
                footprint={
                    name: int(value) for name, value in _numbers(content, "footprint", "images", "total").items()
                },
                prequential=_numbers(content, "prequential") if content.get("prequential") is not None else None,
                version=str(content.get("version", "")),
            )
        except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else error
            raise InputError(f"{source} is not a result that this version can read: {reason}") from error


def _readings(content: Mapping[str, Any], config: RunConfig) -> dict[str, Evaluation]:
    """Return the evaluations by reading, after checking that each is a matrix of accuracies."""
    found = {}
    for reading, own in content.items():
        for number, row in enumerate(own["accuracy_matrix"], 1):
            known = [_number(value, "an accuracy") for value in row if value is not None]
            if len(row) != len(own["accuracy_matrix"][0]) or len(known) < number or None in row[:number]:
                raise ValueError(f"row {number} of its accuracies does not fit: need one of each task seen")
        if any(None in row for row in own["accuracy_matrix"][-1:]):
            raise ValueError("the last row of its accuracies lacks a task: the run was not finished")
        found[str(reading)] = Evaluation.from_dict(own)
    answering = config.options["answer_from"] or "net"
    if answering not in found or not found[answering].matrix:
        raise ValueError(f"it lacks the accuracies of {answering!r}")
    return found


def _numbers(content: Mapping[str, Any], name: str, *needed: str) -> dict[str, float]:
    """Return the numbers by name that a result holds under a name; those needed must be among them."""
    found = {str(part): _number(value, f"{name}.{part}") for part, value in content[name].items()}
    for part in needed:
        if part not in found:
            raise ValueError(f"{name} lacks {part!r}")
    return found


def _number(value: Any, name: str) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST_NUMBER
    if not good or math.isnan(value):
        raise ValueError(f"{name} is {str(value)[:40]!r}: need a number")
    number: float = value
    return number


def _count_or_none(value: Any) -> int | None:
    return None if value is None else int(_number(value, "memory_images"))


def is_run_result(content: Any) -> bool:
    """Return whether plain data looks like the result of a run over tasks."""
    return isinstance(content, dict) and "accuracy_matrix" in content


def read_result(file: Path) -> RunResult:
    """Return the result that a result.json holds."""
    return RunResult.from_dict(read_json(file), str(file))


def read_json(path: Path, *, follow: bool = False) -> Any:
    """Return the content of a JSON file. A damaged file raises an `InputError`.

    Args:
        path: the file.
        follow: follow a link; for paths that the user has named.
    """
    content = read_plain(path, LARGEST, follow=follow)
    try:
        return parse_json(content)
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON: {error}") from error
