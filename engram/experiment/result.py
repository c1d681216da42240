"""The result of a run: its complete configuration, and everything that was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engram.base.errors import InputError
from engram.evaluation import Evaluation
from engram.experiment.config import PROTOCOL, RunConfig, changed_settings
from engram.persistence.migration import migrate_result

FORMAT = 2


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
                readings={reading: Evaluation.from_dict(own) for reading, own in readings.items()},
                classes=int(content["classes"]),
                images_seen=int(content["images_seen"]),
                memory_images=content.get("memory_images"),
                summarize_rounds=int(content["summarize_rounds"]),
                seconds={str(name): float(value) for name, value in content["seconds"].items()},
                footprint={str(name): int(value) for name, value in content["footprint"].items()},
                prequential=content.get("prequential"),
                version=str(content.get("version", "")),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else error
            raise InputError(f"{source} is not a result that this version can read: {reason}") from error


def is_run_result(content: Any) -> bool:
    """Return whether plain data looks like the result of a run over tasks."""
    return isinstance(content, dict) and "accuracy_matrix" in content


def read_result(file: Path) -> RunResult:
    """Return the result that a result.json holds."""
    return RunResult.from_dict(read_json(file), str(file))


def read_json(path: Path) -> Any:
    """Return the content of a JSON file. A damaged file raises an `InputError`."""
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON: {error}") from error
