"""A state tree on disk: a folder of generations, the newest named by a file that is replaced atomically.

    CURRENT                  "gen-7"
    gen-7/state.safetensors  the tensors
    gen-7/state.json         the rest of the tree
    gen-7/manifest.json      format version and a checksum of each file

A generation is written beside the others, synced, read back, and only then named; the one before is kept until the
next. Processes that save take turns. One that reads beside them tries again if the folder changed in the meantime.
Reading executes nothing, follows no link out of the folder, and has a limit.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import safetensors
import safetensors.torch

from engram.base.errors import InputError, NonFiniteStateError
from engram.base.escaping import for_terminal
from engram.persistence.files import (
    PARTIAL,
    make_folder,
    partial_path,
    read_plain,
    replace_file,
    sync_folder,
    write_synced,
)
from engram.persistence.lock import BusyError, saving_lock
from engram.persistence.parsing import parse_json, read_safetensors
from engram.persistence.state import Tree, flatten, same_tree, unflatten

FORMAT = 2
KEPT_GENERATIONS = 2
LARGEST = {"CURRENT": 1000, "manifest.json": 1 << 16, "state.json": 1 << 26, "state.safetensors": 1 << 33}
"""Largest size in bytes of each file."""
MOST_TRIES = 100
"""How often a folder is read again because another process changed it meanwhile."""

T = TypeVar("T")
_GENERATION = re.compile(r"gen-\d+", re.ASCII)
_DAMAGE = (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError, safetensors.SafetensorError)
"""What reading a damaged file may raise."""
_log = logging.getLogger(__name__)


class CheckpointError(ValueError):
    """A checkpoint is missing, damaged or of a version this software cannot read."""


class OtherFormatError(CheckpointError):
    """A checkpoint was written by another version. It is not damaged, so no older one is taken instead."""


def write_checkpoint(folder: Path, tree: Tree) -> None:
    """Add a generation to `folder` and make it current. If that fails, the one before stays current.

    What could not be read again is refused: with an `InputError` if the tree holds something that cannot be saved.
    """
    files = _files_of(tree)
    try:
        make_folder(folder)
        with saving_lock(folder):
            try:
                _remove_partial(folder)
                _add_generation(folder, files, tree)
            except OSError:
                _remove_partial(folder)
                raise
    except (OSError, BusyError) as error:
        raise CheckpointError(f"{folder} could not be saved to ({error}); what was saved before is intact") from error


def _files_of(tree: Tree) -> dict[str, bytes]:
    """Return the files of a generation by name, or raise an `InputError` if they would not be read again."""
    tensors, skeleton = flatten(tree)
    contiguous = {name: tensor.detach().resolve_conj().resolve_neg() for name, tensor in tensors.items()}
    contiguous = {name: tensor.cpu().contiguous().clone() for name, tensor in contiguous.items()}
    try:
        files = {
            "state.safetensors": safetensors.torch.save(contiguous),
            "state.json": json.dumps(skeleton).encode(),
        }
    except (ValueError, KeyError, safetensors.SafetensorError) as error:
        raise InputError(f"the state cannot be saved: {error}") from error
    checksums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    files["manifest.json"] = json.dumps({"format": FORMAT, "sha256": checksums}, indent=1).encode()
    for name, content in files.items():
        if len(content) > LARGEST[name]:
            raise InputError(
                f"{name} would have {len(content):,} bytes, more than the {LARGEST[name]:,} that are read again: "
                "save less, or shorter labels"
            )
    return files


def _add_generation(folder: Path, files: dict[str, bytes], tree: Tree) -> None:
    name = f"gen-{max(_generations(folder), default=0) + 1}"
    partial = partial_path(folder / name)
    partial.mkdir()
    for file_name, content in files.items():
        write_synced(partial / file_name, content)
    sync_folder(partial)
    _require_readable(partial, tree)
    partial.rename(folder / name)
    sync_folder(folder)
    replace_file(folder / "CURRENT", name.encode())
    _prune(folder, name)


def _require_readable(generation: Path, tree: Tree) -> None:
    """Read a generation as a loader does, and raise an OSError or an `InputError` unless it gives back the tree."""
    try:
        if not same_tree(tree, _read_generation(generation)):
            raise ValueError("something in it is not read as it was written")
    except OSError:
        raise
    except _DAMAGE as error:
        shutil.rmtree(generation, ignore_errors=True)
        raise InputError(f"the state cannot be saved, because it could not be loaded again: {error}") from error


def _remove_partial(folder: Path) -> None:
    """Remove what saves that were cut off have left. Only one process at a time may do this."""
    for partial in (*folder.glob(f"*gen-*{PARTIAL}"), *folder.glob(f"*CURRENT*{PARTIAL}")):
        if partial.is_dir() and not partial.is_symlink():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            with suppress(OSError):
                partial.unlink(missing_ok=True)


def _prune(folder: Path, newest: str) -> None:
    """Remove all generations but the newest, the newest sound one before it, and those of another format."""
    kept = 1
    for number in sorted(_generations(folder), reverse=True):
        older = folder / f"gen-{number}"
        if older.name == newest or _is_of_another_format(older):
            continue
        if kept < KEPT_GENERATIONS and _is_whole(older):
            kept += 1
        else:
            shutil.rmtree(older, ignore_errors=True)


def _is_of_another_format(generation: Path) -> bool:
    try:
        _read_manifest(generation)
    except OtherFormatError:
        return True
    except _DAMAGE:
        return False
    return False


def _is_whole(generation: Path) -> bool:
    try:
        _read_files(generation)
    except _DAMAGE:
        return False
    return True


def read_checkpoint(folder: Path) -> Tree:
    """Return the current generation, or with a warning the one before if the current one is damaged."""
    return build_from_checkpoint(folder, lambda tree: tree)


def build_from_checkpoint(folder: Path, build: Callable[[Tree], T]) -> T:
    """Return what `build` makes of the current generation.

    If that is damaged, or `build` finds values in it that are not finite, the one before is taken, with a warning.
    """
    for tried in range(MOST_TRIES):
        before = _names(folder)
        built, problems = _read_newest(folder, build)
        if not problems or _names(folder) == before or tried == MOST_TRIES - 1:
            break
    if built is None:
        raise CheckpointError(f"no readable checkpoint in {folder} ({'; '.join(problems)})")
    name, made = built
    if problems:
        _log.warning("checkpoint %s: fell back to %s (%s)", folder, name, for_terminal("; ".join(problems), keep=""))
    return made


def _read_newest(folder: Path, build: Callable[[Tree], T]) -> tuple[tuple[str, T] | None, list[str]]:
    """Return the name of the newest sound generation with what was built of it, and what is wrong with newer ones."""
    if not holds_checkpoint(folder):
        raise CheckpointError(f"no checkpoint in {folder}: a file named CURRENT and folders gen-N are expected there")
    names = [f"gen-{number}" for number in sorted(_generations(folder), reverse=True)]
    problems: list[str] = []
    try:
        current = read_plain(folder / "CURRENT", LARGEST["CURRENT"]).decode(errors="replace").strip()
        if _GENERATION.fullmatch(current):
            names = list(dict.fromkeys([current, *names]))
        else:
            problems.append(f"CURRENT names {current[:40]!r}")
    except (OSError, ValueError) as error:
        problems.append(f"CURRENT: {error}")
    for name in names:
        try:
            tree = _read_generation(folder / name)
        except OtherFormatError:
            raise
        except _DAMAGE as error:
            problems.append(f"{name}: {error}")
            continue
        try:
            return (name, build(tree)), problems
        except NonFiniteStateError as error:
            problems.append(f"{name}: {error}")
    return None, problems


def _names(folder: Path) -> tuple[str, list[int]]:
    """Return what a save changes first and last: the name of the current generation, and the generations there are."""
    try:
        current = read_plain(folder / "CURRENT", LARGEST["CURRENT"]).decode(errors="replace")
    except (OSError, ValueError):
        current = ""
    return current, sorted(_generations(folder))


def holds_checkpoint(folder: Path) -> bool:
    """Return whether a folder holds a checkpoint."""
    return (folder / "CURRENT").is_file() or bool(_generations(folder))


def _read_generation(folder: Path) -> Tree:
    contents = _read_files(folder)
    return unflatten(safetensors.torch.load(contents["state.safetensors"]), parse_json(contents["state.json"]))


def _read_manifest(folder: Path) -> dict[str, str]:
    """Return the checksums of a generation by file, or raise an `OtherFormatError` if another version wrote it."""
    if folder.is_symlink():
        raise CheckpointError("it is a link to elsewhere")
    manifest = parse_json(read_plain(folder / "manifest.json", LARGEST["manifest.json"]))
    if manifest["format"] != FORMAT:
        raise OtherFormatError(
            f"{folder} has format {str(manifest['format'])[:20]}, this version reads {FORMAT}: "
            "use the engram that wrote it"
        )
    checksums: dict[str, str] = manifest["sha256"]
    return checksums


def _read_files(folder: Path) -> dict[str, bytes]:
    """Return the files of a generation, after comparing their checksums."""
    checksums = _read_manifest(folder)
    contents = {
        "state.safetensors": read_safetensors(folder / "state.safetensors", LARGEST["state.safetensors"]),
        "state.json": read_plain(folder / "state.json", LARGEST["state.json"]),
    }
    for name, content in contents.items():
        if hashlib.sha256(content).hexdigest() != checksums[name]:
            raise CheckpointError(f"{name} does not match its checksum")
    if not contents["state.json"].isascii():
        raise CheckpointError("state.json is not plain ASCII")
    return contents


def _generations(folder: Path) -> list[int]:
    names = (path.name.removeprefix("gen-") for path in folder.glob("gen-*") if path.is_dir())
    return [int(name) for name in names if name.isdecimal()]
