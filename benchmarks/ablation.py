"""What each part of er-ema adds: the method with one thing changed at a time, on the small protocol.

Three tasks of ten classes of CIFAR-100, 300 images per class, 92,160 bytes of images (30 raw ones), one thread. Each
variant and seed is a run in a folder under --runs. A run that was stopped goes on, one that is finished is not made
again, and --out gets the results of all that are there.

    python benchmarks/ablation.py --seeds 3 --runs runs/ablation --out results/ablation.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from answers import answers

from engram import Method, RunConfig, run
from engram.experiment.result import read_result
from engram.memory import Reservoir
from engram.methods import MEMORIES, METHODS
from engram.schemes import (
    AsymmetricReplay,
    DarkExperienceReplay,
    ExperienceReplay,
    MomentumDistillation,
    ProxyContrastiveReplay,
)

PROTOCOL: dict[str, Any] = {
    "dataset": "cifar100",
    "stream": "paper",
    "tasks": 3,
    "classes_per_task": 10,
    "images_per_class": 300,
    "memory_bytes": 92_160,
    "threads": 1,
}
FLAGSHIP = METHODS["er-ema"]


@dataclass(frozen=True)
class Variant:
    """One thing that differs from er-ema.

    Args:
        method: the composition.
        options: options of the run.
        settings: settings of its parts, by role.
    """

    method: Method = FLAGSHIP
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def with_scheme(scheme: Any, **settings: Any) -> Variant:
    """Return er-ema with another scheme, and no settings of the one it has."""
    own = {role: value for role, value in FLAGSHIP.settings.items() if role != "scheme"}
    return Variant(replace(FLAGSHIP, scheme=scheme, settings=own | {"scheme": {"replay": 64} | settings}))


def without_augmentation(**changes: Any) -> Method:
    """Return er-ema that trains on images as they are."""
    own = {role: value for role, value in FLAGSHIP.settings.items() if role != "augment"}
    return replace(FLAGSHIP, augment=None, settings=own, **changes)


def with_bytes(memory_bytes: int, codec: str) -> Variant:
    """Return er-ema with another limit and codec."""
    return Variant(options={"memory_bytes": memory_bytes, "codec": codec})


VARIANTS: dict[str, Variant] = {
    "er-ema": Variant(),
    "cross-entropy": with_scheme(ExperienceReplay, passes="joint-mean"),
    "1 repeat": Variant(options={"repeats": 1}),
    "4 repeats": Variant(options={"repeats": 4}),
    "webp(50)": Variant(options={"codec": "webp(50)"}),
    "raw bytes": Variant(options={"codec": "uint8"}),
    "no views": Variant(without_augmentation()),
    "views of full size": Variant(settings={"augment": {"side": 1.0}}),
    "reservoir": Variant(replace(FLAGSHIP, policy=Reservoir)),
    "avif(auto)": Variant(options={"codec": "avif(auto)"}),
    "er-ace": with_scheme(AsymmetricReplay),
    "der++": with_scheme(DarkExperienceReplay),
    "summaries, raw bytes": Variant(replace(FLAGSHIP, **MEMORIES["ssd"]), options={"codec": "uint8"}),
    "pcr as published": with_scheme(ProxyContrastiveReplay),
    "mkd": with_scheme(MomentumDistillation),
    "summaries": Variant(replace(FLAGSHIP, **MEMORIES["ssd"])),
    "avif(50)": Variant(options={"codec": "avif(50)"}),
    "avif(25)": Variant(options={"codec": "avif(25)"}),
    "avif(50,16)": Variant(options={"codec": "avif(50,16)"}),
    "views of half the side": Variant(settings={"augment": {"side": 0.5}}),
    "avif(35), 460,800 bytes": with_bytes(460_800, "avif(35)"),
    "avif(50), 460,800 bytes": with_bytes(460_800, "avif(50)"),
    "avif(auto), 460,800 bytes": with_bytes(460_800, "avif(auto)"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="folder for the folders of the runs")
    parser.add_argument("--out", type=Path, required=True, help="file for the results")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(VARIANTS), metavar="VARIANT")
    parser.add_argument("--precision", default="auto", choices=["auto", "float32", "bf16"])
    options = parser.parse_args()
    for seed in range(options.seeds):
        for name in options.only:
            folder = options.runs / f"{name}-{seed}"
            result = run(config_of(name, seed, options.precision), folder, resume=True)
            if name == "er-ema" and not (folder / "answers.json").exists():
                (folder / "answers.json").write_text(json.dumps(answers(folder)["accuracies"]))
            print(f"{name}, seed {seed}: {result.average_end_accuracy:.1f}", flush=True)
            options.out.write_text(json.dumps(collected(options.runs), indent=1) + "\n")


def config_of(name: str, seed: int, precision: str) -> RunConfig:
    """Return the run of a variant. Its method is known under the name of the variant from now on."""
    variant = VARIANTS[name]
    METHODS[f"ablation: {name}"] = variant.method
    chosen: Any = PROTOCOL | {"seed": seed, "precision": precision} | dict(variant.options)
    return RunConfig(f"ablation: {name}", settings=dict(variant.settings), **chosen)


def collected(runs: Path) -> dict[str, Any]:
    """Return the results that are there, and what other classifiers answer from er-ema, by variant and seed."""
    found = {folder.name: folder / "result.json" for folder in sorted(runs.iterdir())}
    results = {name: read_result(file).to_dict() for name, file in found.items() if file.exists()}
    read = {path.parent.name: json.loads(path.read_text()) for path in sorted(runs.glob("*/answers.json"))}
    return {"results": results, "answers": read}


if __name__ == "__main__":
    main()
