"""From a checkpoint back to what was saved, with everything checked that a damaged or hostile one could get wrong."""

from __future__ import annotations

import logging
import math
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from engram.checkpoint import CheckpointError, holds_checkpoint, read_checkpoint
from engram.core import TIMED, Part
from engram.errors import InputError
from engram.initialise import at_most
from engram.memory import Store, limited_store
from engram.state import Tree, unique_bytes
from engram.validation import Label, check_labels, require_shape

if TYPE_CHECKING:
    from engram.keeper import Keeper

K = TypeVar("K", bound="Keeper")

RESTORING_SLACK = 1 << 26
"""Bytes what is restored may need beyond those that were saved."""

_log = logging.getLogger(__name__)


def environment() -> dict[str, Any]:
    """What bit-exact continuation depends on, besides the state."""
    return {
        "engram": version("engram"),
        "torch": torch.__version__,
        "kornia": version("kornia"),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }


def restored(kind: type[K], path: Path, device: str | None, nets: dict[str, nn.Module | None]) -> tuple[K, Tree]:
    """The `kind` saved at `path` and what was saved along; `nets` are the caller's own in place of ours."""
    path = _checkpoint_of(path)
    tree = read_checkpoint(path)
    given = {name: net for name, net in nets.items() if net is not None}
    try:
        saved = tree[kind.saved_as]
        config = dict(saved["config"]) | ({"device": device} if device else {})
        _check_own_nets(path, config, given)
        keeper = _rebuilt(kind, config | given, saved)
        was, extra = dict(tree["environment"]), tree["extra"]
    except UnfitNetError:
        raise
    except Exception as error:  # a saved state may be wrong in any way, and none of them is the caller's fault
        hint = "; it was saved on another device: give device='cpu'" if "device" in str(error).lower() else ""
        reason = f"it holds {sorted(tree)}" if isinstance(error, KeyError) and kind.saved_as not in tree else error
        message = f"{path} does not hold a {kind.saved_as} this version can restore: {reason}{hint}"
        raise CheckpointError(message) from error
    now = environment()
    changed = [f"{name} was {was.get(name)}, is {now[name]}" for name in now if was.get(name) != now[name]]
    if changed:
        _log.warning("checkpoint %s: going on may differ in the last bits (%s)", path, ", ".join(changed))
    return keeper, extra


def saved_memory(path: Path) -> tuple[Store, list[Label]]:
    """The memory alone of what is saved at `path`, whatever nets belong to it, and the labels of its classes."""
    path = _checkpoint_of(path)
    tree = read_checkpoint(path)
    try:
        saved = tree["learner"] if "learner" in tree else tree["memory"]
        config, state, labels = saved["config"], saved["state"], saved["state"]["labels"]
        image_shape = _possible_shape(saved)
        memory = limited_store(config["memory_size"], config["memory_bytes"], image_shape, config["codec"])
        memory.load_state(state["_memory"])
        check_labels(labels, len(labels), [])
    except Exception as error:  # a saved state may be wrong in any way
        raise CheckpointError(f"{path} holds no memory this version can restore: {error}") from error
    return memory, labels


def _checkpoint_of(path: Path) -> Path:
    """Where the checkpoint is: in the folder itself, or in that of a run."""
    inside = path / "checkpoint"
    return inside if holds_checkpoint(inside) and not holds_checkpoint(path) else path


def _possible_shape(saved: Tree) -> tuple[int, int, int]:
    """Of its images, if making room for what its settings ask takes no more than was saved."""
    if saved["image_shape"] is None:
        raise ValueError("it has not seen anything yet")
    image_shape = require_shape(tuple(saved["image_shape"]))
    asked = [saved["config"].get(name) or 0 for name in ("memory_size", "classes_total")]
    if 8 * max(math.prod(image_shape), *asked) > unique_bytes(saved["state"]) + RESTORING_SLACK:
        raise ValueError("its settings ask for far more than was saved")
    return image_shape


class UnfitNetError(InputError):
    """A checkpoint made with a net of the caller's own, whose code it cannot hold, was loaded without that net; or one
    made with a net of ours was loaded with one."""


def _check_own_nets(path: Path, config: dict[str, Any], given: dict[str, nn.Module]) -> None:
    for name in ("net", "theta"):
        own = isinstance(config.get(name), dict) and "own" in config[name]
        if own and name not in given:
            raise UnfitNetError(
                f"{path} was saved with a {name} of your own, a {config[name]['own']}: give one of the same shape, "
                f"load(path, {name}=...)"
            )
        if name in given and not own:
            raise UnfitNetError(f"{path} was saved with a built-in {name}: load it without giving one")


def _rebuilt(kind: type[K], config: dict[str, Any], saved: Tree) -> K:
    keeper = kind(**config)
    if saved["image_shape"] is not None:
        image_shape = _possible_shape(saved)
        with at_most(unique_bytes(saved["state"]) + RESTORING_SLACK):
            keeper._build(image_shape)
    keeper.load_state(saved["state"])
    _check(keeper)
    return keeper


def _check(keeper: Keeper) -> None:
    kinds = {type(label) for label in keeper.labels}
    if len(kinds) > 1 or not kinds <= {int, str} or len(set(keeper.labels)) < len(keeper.labels):
        raise ValueError("its labels are not all integers or all strings, each once")
    spent = keeper.seconds.values()
    if keeper.seconds.keys() != TIMED or not all(type(value) is float and math.isfinite(value) for value in spent):
        raise ValueError("its times are not numbers by part")
    if keeper.image_shape is None:
        return
    ctx = keeper._context()
    for name in keeper.declared:
        part = getattr(keeper, name)
        if isinstance(part, Part):
            part.check_restored(ctx)
