"""A state tree on disk: a folder of generations, the newest named by a file that is replaced atomically.

    CURRENT                  "gen-7"
    gen-7/state.safetensors  the tensors
    gen-7/state.json         the rest of the tree
    gen-7/manifest.json      format version and a checksum of each file

A generation is written beside the others, synced, and only then named; the one before is kept until the next.
Nothing here can execute what it reads.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import safetensors.torch

from engram.state import Tree, flatten, unflatten

FORMAT = 1
KEPT_GENERATIONS = 2

_log = logging.getLogger(__name__)


class CheckpointError(ValueError):
    """A checkpoint is missing, damaged or of a version this software cannot read."""


class NewerFormatError(CheckpointError):
    """A checkpoint was written by another version: nothing is damaged, and nothing older should be taken instead."""


def write_checkpoint(folder: Path, tree: Tree) -> None:
    """Add a generation to `folder` and make it current."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors, skeleton = flatten(tree)
    contiguous = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    files = {
        "state.safetensors": safetensors.torch.save(contiguous),
        "state.json": json.dumps(skeleton).encode(),
    }
    checksums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    files["manifest.json"] = json.dumps({"format": FORMAT, "sha256": checksums}, indent=1).encode()

    name = f"gen-{max(_generations(folder), default=0) + 1}"
    partial = folder / f"{name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for file_name, content in files.items():
        _write_synced(partial / file_name, content)
    _sync_folder(partial)
    partial.rename(folder / name)
    replace_file(folder / "CURRENT", name.encode())
    for old in sorted(_generations(folder))[:-KEPT_GENERATIONS]:
        shutil.rmtree(folder / f"gen-{old}")


def read_checkpoint(folder: Path) -> Tree:
    """The current generation, or, with a warning, the one before if that is damaged."""
    if not (folder / "CURRENT").is_file():
        raise CheckpointError(f"no checkpoint in {folder}: a file named CURRENT is expected there")
    current = (folder / "CURRENT").read_text().strip()
    older = [f"gen-{number}" for number in sorted(_generations(folder), reverse=True)]
    problems: list[str] = []
    for name in dict.fromkeys([current, *older]):
        try:
            tree = _read_generation(folder / name)
        except NewerFormatError:
            raise
        except (OSError, ValueError) as error:
            problems.append(f"{name}: {error}")
            continue
        if problems:
            _log.warning("checkpoint %s: fell back to %s (%s)", folder, name, "; ".join(problems))
        return tree
    raise CheckpointError(f"no readable checkpoint in {folder} ({'; '.join(problems)})")


def _read_generation(folder: Path) -> Tree:
    manifest = json.loads((folder / "manifest.json").read_bytes())
    if manifest.get("format") != FORMAT:
        raise NewerFormatError(
            f"{folder} has format {manifest.get('format')}, this version reads {FORMAT}: use the engram that wrote it"
        )
    contents = {}
    for name in ("state.safetensors", "state.json"):
        contents[name] = (folder / name).read_bytes()
        if hashlib.sha256(contents[name]).hexdigest() != manifest["sha256"][name]:
            raise CheckpointError(f"{name} does not match its checksum")
    return unflatten(safetensors.torch.load(contents["state.safetensors"]), json.loads(contents["state.json"]))


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old or the new content, never a part."""
    temporary = path.with_name(path.name + ".partial")
    _write_synced(temporary, content)
    os.replace(temporary, path)
    _sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    replace_file(path, (json.dumps(value, indent=1) + "\n").encode())


def _generations(folder: Path) -> list[int]:
    names = (path.name.removeprefix("gen-") for path in folder.glob("gen-*") if path.is_dir())
    return [int(name) for name in names if name.isdecimal()]


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
