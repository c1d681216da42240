"""Digests of short runs, to show that a change of the code changes nothing that is computed.

Record them before a change and compare them after it, on one machine: digests depend on torch and the processor.

    python benchmarks/digests.py /tmp/digests.json     records if the file is not there, else compares

A digest covers the final weights of the net and of θ, the memory, and the accuracy matrix.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engram import Learner, RunConfig, SummaryMemory, class_incremental, load_dataset, run
from engram.memory import Store

SUMMARIZE = {"queue": 8, "ready": 4, "interval": 3}
SCR = {"scheme": {"replay": 12}}
SSD = {"summarize": SUMMARIZE, "theta": {"width": 8}}
WEBP = {"memory_bytes": 3000, "memory_size": None, "codec": "webp(50)"}
PLAIN = ("er", "ocm", "gss", "mir", "ewc++", "lwf", "a-gem", "aser", "dvc", "fine-tune")
CASES: dict[str, dict[str, Any]] = {
    **{method: {} for method in PLAIN},
    "scr": {"settings": SCR},
    "scr+ssd": {"settings": SCR | SSD},
    "scr+aser": {"settings": SCR},
    "dvc+ssd": {"settings": SSD},
    "rar": {"repeats": 2},
    "rar-s": {"repeats": 2},
    "er+dynamic in bytes": WEBP,
    "gss in bytes": WEBP,
    "er+aser in bytes": WEBP,
    "scr+ssd in bytes": WEBP | {"settings": SCR | SSD},
    "scr+ssd on a paper stream": {"stream": "paper", "average": 0.99, "keep_originals": True, "settings": SCR | SSD},
    "er with bytes and a fixed head": {"codec": "uint8", "classes_total": 6, "stream": "blurry(0.2)"},
    "iid-offline": {"epochs": 1},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    path = parser.parse_args().file
    torch.set_num_threads(1)
    found = dict([*runs(), *memories()])
    if not path.exists():
        path.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{len(found)} digests recorded in {path}")
        return 0
    before = json.loads(path.read_text())
    changed = [name for name in before if before[name] != found.get(name)]
    print(f"changed: {', '.join(changed)}" if changed else f"all {len(before)} digests are equal")
    return 1 if changed else 0


def runs() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the digests of a short run of each case."""
    for name, options in CASES.items():
        settings = options.get("settings", {}) | {"net": {"width": 16}}
        common: dict[str, Any] = {
            "tasks": 3,
            "classes_per_task": 2,
            "images_per_class": 30,
            "memory_size": 8,
            "seed": 3,
        }
        config = RunConfig(name.split()[0], **common | options | {"settings": settings})
        with tempfile.TemporaryDirectory() as folder:
            result = run(config, Path(folder) / "run")
            learner = Learner.load(Path(folder) / "run")
        digests = {"net": of_tensors(learner.model.net.state_dict()), "memory": of_memory(learner.memory)}
        if "theta" in config.settings:
            digests["theta"] = of_tensors(learner.summarizer.theta.state_dict())  # type: ignore[union-attr]
        yield name, digests | {"matrix": of_bytes(json.dumps(result.evaluation.matrix).encode())}


def memories() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the digests of memories by themselves, limited in images and in bytes."""
    limits: list[dict[str, Any]] = [{"memory_size": 8}, {"memory_bytes": 3000, "codec": "webp(50)"}]
    for limit in limits:
        memory = SummaryMemory(summarize=SUMMARIZE, theta={"width": 8}, seed=1, **limit)
        for x, y in class_incremental(load_dataset("digits"), seed=2, tasks=3, images_per_class=30):
            memory.update(x, y)
        theta = of_tensors(memory.summarizer.theta.state_dict())
        yield f"SummaryMemory {limit}", {"memory": of_memory(memory.memory), "theta": theta}


def of_memory(memory: Store) -> str:
    columns = {name: getattr(memory, name)[: memory.size] for name in ("labels", "claimed", "summary", "ids")}
    return of_tensors(columns | {f"image {slot}": record for slot, record in enumerate(memory.records)})


def of_tensors(tensors: Mapping[str, Tensor]) -> str:
    named = [(f"{name} {tensor.dtype} {tuple(tensor.shape)}", tensor) for name, tensor in sorted(tensors.items())]
    parts = (facts.encode() + tensor.numpy().tobytes() for facts, tensor in named)
    return of_bytes(b"".join(parts))


def of_bytes(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
