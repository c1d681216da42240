"""What a part may use during one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch

if TYPE_CHECKING:
    from engram.base.interfaces import Retrieval, Scheme
    from engram.base.model import Model
    from engram.base.rng import Randomness
    from engram.memory.store import Store

TIMED = ("train", "store", "summarize", "theta")
"""Names that learning time is booked under."""


@dataclass(frozen=True, kw_only=True)
class MemoryContext:
    """What is at hand wherever a stream is stored, with or without a net that learns from it.

    It is made anew for each call; a part must never keep it.
    """

    memory: Store
    rng: Randomness
    classes: int
    """Number of classes seen so far, this batch included; their indices are range(classes)."""
    classes_total: int
    """Number of classes that were announced, or `classes` where none were."""
    iteration: int
    """Number of batches observed before this one."""
    slots_per_class: int
    """Slots a class may claim now (k)."""
    clock: Callable[[str], Any]
    """`with ctx.clock("summarize"):` books the time spent inside under that name."""


@dataclass(frozen=True, kw_only=True)
class StepContext(MemoryContext):
    """What is at hand while a learner trains: the memory's context, and what is trained."""

    model: Model
    averaged: Model | None
    """The moving average of the net, if the learner keeps one."""
    scheme: Scheme
    retrieval: Retrieval
    optimizer: torch.optim.Optimizer


ContextUsed = TypeVar("ContextUsed", contravariant=True)


class Hooks(Protocol[ContextUsed]):
    """What is called on each part of a consumer."""

    provides: frozenset[str]

    def after_adopting(self, memory: Store) -> None: ...

    def on_boundary(self, ctx: ContextUsed) -> None: ...

    def on_new_classes(self, new: list[int], ctx: ContextUsed) -> None: ...
