"""The table that `engram recommend` chooses from, made from files under results/."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from statistics import mean
from typing import Any

from measured import ROOT, read, results

from engram.experiment.result import RunResult

CHANNELS = 3
TARGET = ROOT / "engram" / "recommending" / "measured.json"
OPTIONS_ONLY = ("er-ema", "1 repeat", "4 repeats", "avif(", "webp(50)", "raw bytes")
"""Runs of the ablation that differ from er-ema in options alone. The others are methods that have no name."""


def choices_text() -> str:
    """Return the table as JSON."""
    groups: dict[str, list[RunResult]] = defaultdict(list)
    for file, method, result in _runs():
        groups[json.dumps({"file": f"results/{file}.json", "method": method} | _facts(result))].append(result)
    runs = [
        json.loads(facts)
        | {
            "accuracy": round(mean(run.average_end_accuracy for run in found), 1),
            "seeds": len(found),
            "milliseconds": round(mean(1000 * run.seconds["train"] / (run.images_seen / 10) for run in found)),
        }
        for facts, found in groups.items()
    ]
    by_codec: dict[str, dict[str, float]] = defaultdict(dict)
    for one in read("codecs"):
        by_codec[one["codec"]][str(one["pixels"])] = round(one["bytes"], 1)
    return json.dumps({"bytes": by_codec, "runs": runs}, indent=1) + "\n"


def _runs() -> Iterator[tuple[str, str, RunResult]]:
    """Yield the name of a file, the name of a method, and a run of it."""
    for name, saved in read("ablation")["results"].items():
        if name.startswith(OPTIONS_ONLY):
            yield "ablation", "er-ema", RunResult.from_dict(saved)
    for file in ("small-precision", "full-er-ema"):
        for result in results(file):
            yield file, result.method, result


def _facts(result: RunResult) -> dict[str, Any]:
    """Return what runs must share to be seeds of one another. A limit in images is told as that of raw bytes."""
    chosen = result.config.options
    raw = CHANNELS * chosen["image_size"] ** 2
    return {
        "data": chosen["dataset"],
        "image_size": chosen["image_size"],
        "tasks": len(result.evaluation.matrix),
        "classes": result.classes,
        "images_per_class": result.images_seen // result.classes,
        "memory_bytes": chosen["memory_bytes"] or raw * chosen["memory_size"],
        "codec": chosen["codec"] if chosen["memory_bytes"] else "uint8",
        "repeats": chosen["repeats"],
        "precision": chosen["precision"],
    }
