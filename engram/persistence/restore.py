"""Restore learners and memories from checkpoints, with checks against damaged and hostile files."""

from __future__ import annotations

import logging
import math
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from engram.base.context import TIMED
from engram.base.errors import InputError, NonFiniteStateError, UnknownPartError
from engram.base.escaping import for_terminal
from engram.base.initialization import at_most
from engram.base.part import Part
from engram.base.validation import Label, check_labels, require_shape
from engram.memory import Store, make_store
from engram.memory.budget import FIRST_SLOTS
from engram.memory.making import make_limit
from engram.persistence.checkpoint import CheckpointError, build_from_checkpoint, holds_checkpoint
from engram.persistence.migration import migrate_settings
from engram.persistence.state import Tree, unique_bytes

if TYPE_CHECKING:
    from engram.stream_consumer import StreamConsumer

C = TypeVar("C", bound="StreamConsumer[Any]")

RESTORING_SLACK = 1 << 26
"""Bytes that restoring may allocate beyond those that were saved."""

_log = logging.getLogger(__name__)


def environment() -> dict[str, Any]:
    """Return the facts that exact continuation depends on, besides the state."""
    return {
        "engram": version("engram"),
        "torch": torch.__version__,
        "kornia": version("kornia"),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }


def restored(
    kind: type[C],
    path: Path,
    device: str | None = None,
    nets: Mapping[str, nn.Module | None] = MappingProxyType({}),
    *,
    continuing: bool = True,
) -> tuple[C, Tree]:
    """Return the object saved at a path, and the extra that was saved with it.

    Args:
        kind: class of the object.
        path: folder of the checkpoint, or of a run.
        device: device to put it on; the one it was on if None.
        nets: nets of the caller's own, by role.
        continuing: warn if learning on from here may differ from what it would have been where it was saved.
    """
    path = _checkpoint_of(path)
    given = {name: net for name, net in nets.items() if net is not None}
    consumer, extra, was = build_from_checkpoint(path, lambda tree: _restored_from(tree, kind, path, device, given))
    now = environment()
    if consumer.options["threads"]:  # it computes with as many, whatever the process has
        now.pop("threads")
    changed = [f"{name} was {was.get(name)}, is {now[name]}" for name in now if was.get(name) != now[name]]
    if changed and continuing:
        shown = for_terminal(", ".join(changed)[:500], keep="")
        _log.warning("checkpoint %s: going on may differ in the last bits (%s)", path, shown)
    return consumer, extra


def _restored_from(
    tree: Tree, kind: type[C], path: Path, device: str | None, given: dict[str, nn.Module]
) -> tuple[C, Tree, dict[str, Any]]:
    """Return what `restored` does, from the tree of one generation, and the environment that it was saved in."""
    try:
        saved = tree[kind.saved_as]
        config = migrate_settings(saved["config"]) | ({"device": device} if device else {})
        _check_own_nets(path, config, given)
        consumer = _rebuilt(kind, kind.arguments_from(config) | given, saved)
        was, extra = dict(tree["environment"]), tree["extra"]
    except (UnfitNetError, UnknownPartError, NonFiniteStateError):
        raise
    except Exception as error:  # a saved state may be wrong in any way, and none of them is the caller's fault
        hint = "; it was saved on another device: give device='cpu'" if "device" in str(error).lower() else ""
        names = sorted(tree) if isinstance(tree, dict) else []
        reason = f"it holds {names}" if isinstance(error, KeyError) and kind.saved_as not in names else error
        if "predictor" in names:
            reason, hint = "it was saved for inference only", ": load it with engram.Predictor.load"
        message = f"{path} does not hold a {kind.saved_as} this version can restore: {reason}{hint}"
        raise CheckpointError(message) from error
    return consumer, extra, was


def saved_memory(path: Path) -> tuple[Store, list[Label]]:
    """Return the memory that is saved at a path, whatever nets belong to it, and the labels of its classes."""
    path = _checkpoint_of(path)
    return build_from_checkpoint(path, lambda tree: _memory_from(tree, path))


def _memory_from(tree: Tree, path: Path) -> tuple[Store, list[Label]]:
    if isinstance(tree, dict) and "predictor" in tree:
        raise CheckpointError(f"{path} was saved for inference only, so it holds no memory")
    try:
        saved = tree["learner"] if "learner" in tree else tree["memory"]
        config, state, labels = saved["config"], saved["state"], saved["state"]["labels"]
        _possible_shape(saved)
        keeps_logits = "keeps_logits" in state["_memory"]
        memory = make_store(config | {"keep_originals": False}, _stored_shape(saved), keeps_logits)
        memory.load_state(state["_memory"])
        memory.require_finite()
        check_labels(labels, len(labels), [])
        memory.check_logits(max(len(labels), config.get("classes_total") or 0))
        if memory.size and not 0 <= int(memory.labels[: memory.size].max()) < len(labels):
            raise ValueError("it holds images of classes that have no label")
    except NonFiniteStateError:
        raise
    except Exception as error:  # a saved state may be wrong in any way
        raise CheckpointError(f"{path} holds no memory this version can restore: {error}") from error
    return memory, labels


def _checkpoint_of(path: Path) -> Path:
    """Return the folder of the checkpoint: the folder itself, or the one inside a run's folder."""
    inside = path / "checkpoint"
    return inside if holds_checkpoint(inside) and not holds_checkpoint(path) else path


def _possible_shape(saved: Tree) -> tuple[int, int, int]:
    """Return the shape of the images, or raise a ValueError if the settings ask for far more than was saved."""
    if saved["image_shape"] is None:
        raise ValueError("it has not seen anything yet")
    image_shape, config = require_shape(tuple(saved["image_shape"])), saved["config"]
    asked = 8 * max(math.prod(image_shape), math.prod(_stored_shape(saved)), config.get("classes_total") or 0)
    memory = saved["state"]["_memory"]
    limit = make_limit(config, _stored_shape(saved), "keeps_logits" in memory)
    slots = max(FIRST_SLOTS, len(memory["labels"]))
    if asked > unique_bytes(saved["state"]) + RESTORING_SLACK or limit.first_slots > slots:
        raise ValueError("its settings ask for far more than was saved")
    return image_shape


def _stored_shape(saved: Tree) -> tuple[int, int, int]:
    """Return the shape of what the memory keeps: that of the images, or that of their latents."""
    channels, height, width = saved.get("stored_shape") or saved["image_shape"]
    if not all(isinstance(side, int) and side > 0 for side in (channels, height, width)):
        raise ValueError("what it stores has no shape")
    return channels, height, width


class UnfitNetError(InputError):
    """A checkpoint with a net of the caller's own was loaded without such a net, or one without was loaded with it."""


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


def _rebuilt(kind: type[C], config: dict[str, Any], saved: Tree) -> C:
    consumer = kind(**config)
    if saved["image_shape"] is not None:
        image_shape = _possible_shape(saved)
        with at_most(unique_bytes(saved["state"]) + RESTORING_SLACK):
            consumer._build(image_shape)
    consumer.load_state(saved["state"])
    consumer.require_finite()
    _check(consumer)
    consumer.divide_total()
    return consumer


def _check(consumer: StreamConsumer[Any]) -> None:
    kinds = {type(label) for label in consumer.labels}
    if len(kinds) > 1 or not kinds <= {int, str} or len(set(consumer.labels)) < len(consumer.labels):
        raise ValueError("its labels are not all integers or all strings, each once")
    spent = consumer.seconds.values()
    if consumer.seconds.keys() != set(TIMED) or not all(
        type(value) is float and math.isfinite(value) for value in spent
    ):
        raise ValueError("its times are not numbers by part")
    if consumer.image_shape is None:
        return
    ctx = consumer._context()
    for name in consumer.declared:
        part = getattr(consumer, name)
        if isinstance(part, Part):
            part.check_restored(ctx)
