"""Files that ask for far more than they are, and what reading each of them takes in a process of its own.

`python -m tests.faults.greedy FOLDER` prints for each case what came of it, the seconds, and the megabytes that the
process grew by.
"""

import hashlib
import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from engram import ExportedMemory, Learner
from engram.cli import main
from engram.experiment.config import RunConfig, read_yaml
from engram.experiment.events import summarizing_losses
from engram.experiment.folder import RunFolder, class_names_of
from engram.experiment.result import read_result
from engram.persistence.checkpoint import FORMAT, CheckpointError
from engram.persistence.restore import saved_memory
from tests.helpers import feed, small_learner, toy_stream


def sign(generation: Path) -> None:
    """Write a manifest that fits the files of a generation."""
    names = ("state.json", "state.safetensors")
    checksums = {name: hashlib.sha256((generation / name).read_bytes()).hexdigest() for name in names}
    (generation / "manifest.json").write_text(json.dumps({"format": FORMAT, "sha256": checksums}))


def saved(folder: Path, **changes: Any) -> Path:
    feed(small_learner("er", **changes), toy_stream(1, 2)).save(folder)
    return folder / "gen-1"


def changed(folder: Path, change: Callable[[Any], None], **changes: Any) -> None:
    """Save a learner and change what its state.json says."""
    generation = saved(folder, **changes)
    tree = json.loads((generation / "state.json").read_text())
    change(tree["learner"])
    (generation / "state.json").write_text(json.dumps(tree))
    sign(generation)


def with_option(name: str, value: Any) -> Callable[[Path], None]:
    return lambda folder: changed(folder, lambda learner: learner["config"].update({name: value}))


def memory_bytes(folder: Path) -> None:
    changed(folder, lambda learner: learner["config"].update({"memory_size": None, "memory_bytes": 200_000_000_000}))


def generators(folder: Path) -> None:
    def change(learner: Any) -> None:
        states = learner["state"]["rng"]
        states.update({f"g{number}": states["init"] for number in range(100_000)})

    changed(folder, change)


def optimizer_values(folder: Path) -> None:
    def change(learner: Any) -> None:
        entries = learner["state"]["averaged"]["net"]
        some = next(iter(entries.values()))
        names = {f"v{number}": some for number in range(100_000)}
        learner["state"]["optimizer"] = {"$int_keys": [[index, names] for index in range(3)]}

    changed(folder, change, average=0.9)


def empty_records(folder: Path) -> None:
    def change(learner: Any) -> None:
        learner["state"]["_memory"]["records"]["sizes"] = [0] * 1_000_000

    changed(folder, change)


def dense_json(folder: Path) -> None:
    generation = saved(folder)
    (generation / "state.json").write_bytes(b"[" + b"[]," * ((1 << 26) // 3 - 2) + b"[]]")
    sign(generation)


def deep_json(folder: Path) -> None:
    generation = saved(folder)
    (generation / "state.json").write_bytes(b"[" * (1 << 20) + b"]" * (1 << 20))
    sign(generation)


def longer_file(folder: Path) -> None:
    with (saved(folder) / "state.safetensors").open("r+b") as file:
        file.truncate(1 << 33)


def holes(path: Path, size: int) -> None:
    """Write a safetensors file of one tensor of this size that is not stored."""
    header = json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)


def sparse_file(folder: Path) -> None:
    holes(saved(folder) / "state.safetensors", (1 << 33) - 4096)


def many_tensors(folder: Path) -> None:
    generation = saved(folder)
    empty = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"t{number}": empty for number in range(100_000)}).encode()
    (generation / "state.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    sign(generation)


def load(folder: Path) -> None:
    Learner.load(folder)


def anchors(path: Path) -> None:
    """About a kilobyte of YAML that stands for 9^12 values."""
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    path.write_text("\n".join([*lines, "method: er", "seed: *a11", "scheme: {replay: *a11}"]))


def merges(path: Path) -> None:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{','.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 12)]
    path.write_text("\n".join([*lines, "method: er"]))


def config_folder(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        folder.mkdir()
        make(folder / "config.yaml")

    return write


def open_run(folder: Path) -> None:
    RunFolder(folder).open(RunConfig("er"), ["a"])


def exported(change: Callable[[dict[str, torch.Tensor], dict[str, str]], None]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        learner = feed(small_learner("er", memory_size=None, memory_bytes=4000, codec="webp(50)"), toy_stream(1, 2))
        learner.export_memory().write(folder)
        path = folder / "memory.safetensors"
        tensors = safetensors.torch.load_file(path)
        facts = {"format": "1", "labels": json.dumps([0] * len(tensors["images"])), "seen": "96", "codec": "webp(50)"}
        change(tensors, facts)
        safetensors.torch.save_file(tensors, path, metadata=facts)

    return write


def exported_holes(folder: Path) -> None:
    folder.mkdir()
    holes(folder / "memory.safetensors", (1 << 32) - 4096)


def exported_sizes(tensors: dict[str, torch.Tensor], facts: dict[str, str]) -> None:
    tensors["sizes"] = torch.zeros(1_000_000, dtype=torch.int64)


def exported_labels(tensors: dict[str, torch.Tensor], facts: dict[str, str]) -> None:
    facts["labels"] = "[" + "[]," * 10_000_000 + "[]]"


def text_file(name: str, content: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        folder.mkdir()
        (folder / name).write_bytes(content)

    return write


def sparse_text(name: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        folder.mkdir()
        with (folder / name).open("wb") as file:
            file.truncate(1 << 33)

    return write


DENSE = b"[" + b"[]," * 20_000_000 + b"[]]"

CASES: dict[str, tuple[Callable[[Path], None], Callable[[Path], Any]]] = {
    "memory_bytes": (memory_bytes, load),
    "memory_bytes shown": (memory_bytes, saved_memory),
    "memory_size": (with_option("memory_size", 8_000_000), load),
    "classes_total": (with_option("classes_total", 8_000_000), load),
    "classes_total within reason": (with_option("classes_total", 100_000), load),
    "width": (with_option("net", {"width": 5000}), load),
    "generators": (generators, load),
    "optimizer values": (optimizer_values, load),
    "empty records": (empty_records, load),
    "dense json": (dense_json, load),
    "deep json": (deep_json, load),
    "longer file": (longer_file, load),
    "sparse file": (sparse_file, load),
    "many tensors": (many_tensors, load),
    "anchors": (config_folder(anchors), lambda folder: read_yaml(folder / "config.yaml")),
    "anchors on the command line": (
        config_folder(anchors),
        lambda folder: main(["run", "--config", str(folder / "config.yaml")]),
    ),
    "anchors in a run": (config_folder(anchors), open_run),
    "merges": (config_folder(merges), lambda folder: read_yaml(folder / "config.yaml")),
    "exported holes": (exported_holes, ExportedMemory.read),
    "exported sizes": (exported(exported_sizes), ExportedMemory.read),
    "exported labels": (exported(exported_labels), ExportedMemory.read),
    "result": (text_file("result.json", DENSE), lambda folder: read_result(folder / "result.json")),
    "sparse result": (sparse_text("result.json"), lambda folder: read_result(folder / "result.json")),
    "class names": (text_file("classes.json", DENSE), class_names_of),
    "sparse events": (sparse_text("events.jsonl"), summarizing_losses),
    "sparse config": (sparse_text("config.yaml"), lambda folder: read_yaml(folder / "config.yaml")),
}
"""By name: what makes the files in a folder, and what reads them."""


def measure(make: Callable[[Path], None], read: Callable[[Path], Any], folder: Path) -> tuple[str, float, float]:
    """Return what reading came to, its seconds, and the megabytes it took, in a process forked for it."""
    make(folder)
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        began = time.perf_counter()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            code = read(folder)
            outcome = "refused" if code == 1 and read(folder) == 1 else "accepted"
        except (ValueError, CheckpointError):
            outcome = "refused"
        except BaseException as error:
            outcome = f"{type(error).__name__}: {error}"
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        os.write(send, json.dumps([outcome, time.perf_counter() - began, grown]).encode())
        os._exit(0)
    os.close(send)
    os.waitpid(child, 0)
    with open(receive, "rb") as file:
        answer = file.read()
    shutil.rmtree(folder)
    found: tuple[str, float, float] = tuple(json.loads(answer or '["killed", 0, 0]'))
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    figures = {name: measure(*case, Path(sys.argv[1]) / "case") for name, case in CASES.items()}
    print(json.dumps(figures))
