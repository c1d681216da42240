"""A state tree on disk: a folder of generations, the newest named by a file that is replaced atomically.

    CURRENT                  "gen-7"
    gen-7/state.safetensors  the tensors
    gen-7/state.json         the rest of the tree
    gen-7/manifest.json      format version and a checksum of each file

A generation is written beside the others, synced, and only then named; the one before is kept until the next.
Reading executes nothing, follows no link out of the folder, and has a limit.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import stat
from contextlib import suppress
from pathlib import Path

import safetensors
import safetensors.torch

from engram.persistence.files import make_folder, replace_file, sync_folder, write_synced
from engram.persistence.state import Tree, flatten, unflatten

FORMAT = 2
KEPT_GENERATIONS = 2
LARGEST = {"CURRENT": 1000, "manifest.json": 1 << 16, "state.json": 1 << 26, "state.safetensors": 1 << 33}
"""Largest size in bytes of each file."""

_GENERATION = re.compile(r"gen-\d+")
_log = logging.getLogger(__name__)


class CheckpointError(ValueError):
    """A checkpoint is missing, damaged or of a version this software cannot read."""


class OtherFormatError(CheckpointError):
    """A checkpoint was written by another version. It is not damaged, so no older one is taken instead."""


def write_checkpoint(folder: Path, tree: Tree) -> None:
    """Add a generation to `folder` and make it current. If that fails, the one before stays current."""
    tensors, skeleton = flatten(tree)
    contiguous = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    files = {
        "state.safetensors": safetensors.torch.save(contiguous),
        "state.json": json.dumps(skeleton).encode(),
    }
    checksums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    files["manifest.json"] = json.dumps({"format": FORMAT, "sha256": checksums}, indent=1).encode()
    try:
        make_folder(folder)
        _add_generation(folder, files)
    except OSError as error:
        with suppress(OSError):
            (folder / "CURRENT.partial").unlink(missing_ok=True)
        for partial in folder.glob("gen-*.partial"):
            shutil.rmtree(partial, ignore_errors=True)
        raise CheckpointError(f"{folder} could not be saved to ({error}); what was saved before is intact") from error


def _add_generation(folder: Path, files: dict[str, bytes]) -> None:
    name = f"gen-{max(_generations(folder), default=0) + 1}"
    partial = folder / f"{name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for file_name, content in files.items():
        write_synced(partial / file_name, content)
    sync_folder(partial)
    partial.rename(folder / name)
    sync_folder(folder)
    replace_file(folder / "CURRENT", name.encode())
    _prune(folder, name)


def _prune(folder: Path, newest: str) -> None:
    """Remove all generations but the newest and the newest sound one before it."""
    kept = 1
    for number in sorted(_generations(folder), reverse=True):
        older = folder / f"gen-{number}"
        if older.name == newest:
            continue
        if kept < KEPT_GENERATIONS and _is_whole(older):
            kept += 1
        else:
            shutil.rmtree(older, ignore_errors=True)


def _is_whole(generation: Path) -> bool:
    try:
        _read_files(generation)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return True


def read_checkpoint(folder: Path) -> Tree:
    """Return the current generation, or with a warning the one before if the current one is damaged."""
    if not holds_checkpoint(folder):
        raise CheckpointError(f"no checkpoint in {folder}: a file named CURRENT and folders gen-N are expected there")
    older = [f"gen-{number}" for number in sorted(_generations(folder), reverse=True)]
    problems: list[str] = []
    try:
        current = _read_limited(folder / "CURRENT").decode(errors="replace").strip()
        if not _GENERATION.fullmatch(current):
            problems.append(f"CURRENT names {current[:40]!r}")
    except (OSError, CheckpointError) as error:
        problems.append(f"CURRENT: {error}")
    for name in dict.fromkeys(older if problems else [current, *older]):
        try:
            tree = _read_generation(folder / name)
        except OtherFormatError:
            raise
        except (OSError, ValueError, KeyError, TypeError, RecursionError, safetensors.SafetensorError) as error:
            problems.append(f"{name}: {error}")
            continue
        if problems:
            _log.warning("checkpoint %s: fell back to %s (%s)", folder, name, "; ".join(problems))
        return tree
    raise CheckpointError(f"no readable checkpoint in {folder} ({'; '.join(problems)})")


def holds_checkpoint(folder: Path) -> bool:
    """Return whether a folder holds a checkpoint."""
    return (folder / "CURRENT").is_file() or bool(_generations(folder))


def _read_generation(folder: Path) -> Tree:
    contents = _read_files(folder)
    return unflatten(safetensors.torch.load(contents["state.safetensors"]), json.loads(contents["state.json"]))


def _read_files(folder: Path) -> dict[str, bytes]:
    """Return the files of a generation, after comparing their checksums."""
    if folder.is_symlink():
        raise CheckpointError("it is a link to elsewhere")
    manifest = json.loads(_read_limited(folder / "manifest.json"))
    if manifest["format"] != FORMAT:
        raise OtherFormatError(
            f"{folder} has format {str(manifest['format'])[:20]}, this version reads {FORMAT}: "
            "use the engram that wrote it"
        )
    contents = {}
    for name in ("state.safetensors", "state.json"):
        contents[name] = _read_limited(folder / name)
        if hashlib.sha256(contents[name]).hexdigest() != manifest["sha256"][name]:
            raise CheckpointError(f"{name} does not match its checksum")
    return contents


def _read_limited(path: Path) -> bytes:
    """Return the content of a regular file, unless it is larger than a file of its name may be."""
    limit = LARGEST[path.name]
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise CheckpointError(f"{path.name} is no plain file")
        if facts.st_size > limit:
            raise CheckpointError(f"{path.name} has {facts.st_size:,} bytes, more than {limit:,}")
        return file.read(limit + 1)


def _generations(folder: Path) -> list[int]:
    names = (path.name.removeprefix("gen-") for path in folder.glob("gen-*") if path.is_dir())
    return [int(name) for name in names if name.isdecimal()]
