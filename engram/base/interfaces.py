"""The kinds of parts a method is made of, one small base class each.

A sample's way: stream → learner → scheme (trains the net) → policy (stores) → summarizer (improves the memory) →
classifier (answers).
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.base.batch import Batch
from engram.base.context import MemoryContext, StepContext
from engram.base.errors import InputError
from engram.base.heads import GrowingHead
from engram.base.model import Model, Parameters
from engram.base.part import Part
from engram.base.rng import Randomness
from engram.base.settings import resolve

if TYPE_CHECKING:
    from engram.memory.store import Store


class StepPart(Part):
    """A part of a method; it hears of task boundaries and of new classes.

    The arguments of its constructor are its settings. They are checked by their annotations, and kept in `settings`.
    """

    settings: dict[str, Any]
    """All settings that the part was made with, by name."""
    images_only: bool = False
    """Whether it changes what it gets as only images can be changed, so that it cannot work on latents."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        part = super().__new__(cls)
        bound = inspect.signature(cls).bind(*args, **kwargs)
        part.settings = resolve(cls, bound.arguments)
        return part

    def after_adopting(self, memory: Store) -> None:
        """Called when the memory was filled with the images of another one, before any batch."""

    def on_boundary(self, ctx: StepContext) -> None:
        """Called when a task has ended: the caller said so, or new classes arrived."""

    def on_new_classes(self, new: list[int], ctx: StepContext) -> None:
        """Called before the first batch of classes not seen before; `ctx.classes` counts them already."""


class MemoryPart(StepPart):
    """A part that needs no net, so that it also works in a memory by itself."""

    def on_boundary(self, ctx: MemoryContext) -> None:
        """Called when a task has ended: the caller said so, or new classes arrived."""

    def on_new_classes(self, new: list[int], ctx: MemoryContext) -> None:
        """Called before the first batch of classes not seen before; `ctx.classes` counts them already."""

    def check_restored(self, ctx: MemoryContext) -> None:
        """Raise a ValueError if the restored state cannot belong to these images and classes."""


class Scheme(StepPart):
    """Defines how one step trains the net."""

    learning_rate: float
    uses_average = False
    """Whether it trains with the help of the averaged net, so that the learner must keep one."""
    draws: int = 1
    """Number of independent draws of memory images in one step. They reach `loss` as one batch, one after another."""

    def build(self, model: Model, rng: Randomness) -> torch.optim.Optimizer:
        """Add the heads this scheme needs and return the optimizer of the whole model."""
        raise NotImplementedError

    def replay_size(self, ctx: StepContext) -> int:
        """Return how many memory images one step asks retrieval for."""
        raise NotImplementedError

    def before_retrieval(self, stream: Batch, ctx: StepContext) -> None:
        """Called in train mode at the start of a step, before memory images are chosen."""

    def loss(self, stream: Batch, replay: Batch | None, ctx: StepContext) -> Tensor | None:
        """Return the loss to descend, or None for no step. `replay` is None while the memory is empty."""
        raise NotImplementedError

    def with_logits(self, stream: Batch) -> Batch:
        """Return the stream batch as it is stored; a scheme that provides "stored logits" adds them to it."""
        return stream

    def class_scores(self, x: Tensor, ctx: StepContext, params: Parameters | None = None) -> Tensor:
        """Return the scores that a label loss is taken over; by default the logits."""
        return ctx.model.logits(x, params)

    def stream_loss(self, stream: Batch, ctx: StepContext, params: Parameters | None = None) -> Tensor:
        """Return the loss that a virtual step on the stream batch descends."""
        return F.cross_entropy(self.class_scores(stream.x, ctx, params), stream.y)

    def adjust_gradients(self, stream: Batch, ctx: StepContext) -> None:
        """Change the gradients of the loss before the step is taken."""

    def after_step(self, ctx: StepContext) -> None:
        """Called after the step, while its gradients are still there."""


class Augmentation(StepPart):
    """Changes stream and replay images before each training step; stored images stay as they came."""

    def augment(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return changed copies of the images."""
        raise NotImplementedError

    def output_size(self, size: int) -> int:
        """Return the pixels per side of what `augment` returns for images of this size."""
        return size


class Retrieval(StepPart):
    """Chooses which memory images are replayed."""

    def select(self, stream: Batch, count: int, ctx: StepContext) -> Tensor:
        """Return up to `count` distinct filled slots."""
        raise NotImplementedError


@dataclass
class StoreReport:
    """What a policy did with one batch.

    Args:
        stored: slots that were written.
        claimed: slots among them that their class has newly claimed.
    """

    stored: list[int] = field(default_factory=list)
    claimed: list[int] = field(default_factory=list)


class Policy(StepPart):
    """Decides which stream images enter the memory, and which leave it."""

    def store(self, stream: Batch, ctx: StepContext) -> StoreReport:
        """Offer the batch to the memory."""
        raise NotImplementedError


class MemoryPolicy(MemoryPart, Policy):
    """A policy that looks at no net."""

    def store(self, stream: Batch, ctx: MemoryContext) -> StoreReport:
        """Offer the batch to the memory."""
        raise NotImplementedError


class SummarizingNet(nn.Module):
    """What summarizing asks of its net θ. Images must not influence each other, so it has no batch statistics."""

    @property
    def matched_weights(self) -> list[Tensor]:
        """The weights whose gradients are matched."""
        raise NotImplementedError

    def features(self, x: Tensor) -> Tensor:
        """Return the features of the images (N,D)."""
        raise NotImplementedError

    def classify(self, features: Tensor) -> Tensor:
        """Return the logits of the classes seen."""
        raise NotImplementedError

    def grow(self, classes: int, generator: torch.Generator) -> None:
        """Make room for `classes` classes in all."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the images."""
        return self.classify(self.features(x))


class Summarizer(MemoryPart):
    """Improves what the memory holds. It sees every stream batch, after the net was trained on it."""

    rounds: int
    """Number of summarizing rounds so far."""
    last_losses: dict[str, float]
    """The terms of the loss in the last round, by name."""

    def build(self, theta: SummarizingNet) -> None:
        """Take the summarizing net θ. Called once, when the shape of the images is known."""
        raise NotImplementedError

    def tell_if_idle(self, ctx: MemoryContext) -> None:
        """Log once, at the end of a stream or a task, that nothing could be summarized, why, and what to change."""

    def push(self, stream: Batch, ctx: MemoryContext) -> None:
        """Called before the batch is stored."""
        raise NotImplementedError

    def most_bytes(self, ctx: MemoryContext) -> int:
        """Return the most bytes that what it keeps of the current classes may grow to."""
        return 0

    def after_store(self, stream: Batch, report: StoreReport, ctx: MemoryContext) -> None:
        """Called after the batch is stored: summarize if a round is due, then learn from the batch."""
        raise NotImplementedError


class Classifier(StepPart):
    """Answers which class an image belongs to."""

    mirror: bool = False
    """Whether answers come from the mean of an image's features and those of its mirror image."""

    def scores(self, x: Tensor, ctx: StepContext) -> Tensor:
        """Return scores (N,classes); higher is likelier, -inf where a class cannot be predicted."""
        raise NotImplementedError

    def answering_model(self, ctx: StepContext) -> Model:
        """Return the model whose features `head` takes, as long as nothing more is learned."""
        return ctx.model

    def head(self, ctx: StepContext) -> GrowingHead:
        """Return a head that turns its features into these scores, as long as nothing more is learned."""
        raise InputError(f"answers of {type(self).__name__} cannot be exported: it needs a method `head`")
