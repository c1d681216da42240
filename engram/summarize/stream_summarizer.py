"""SSD's summarizer (Gu et al., 2024): summaries are optimized until θ's gradients on them, and their distances to
past summaries, match those of the stream.

For each current class c, with real images from the queue and synthetic images M_c:
    L_s = L_g(∇θ CE(real), ∇θ CE(M_c)) + γ L_r          M_c ← SGD with momentum on L_s, through θ's gradient
θ itself learns from the stream and from original images in the memory, never from a summary.
"""

from __future__ import annotations

import logging
import math
from types import MappingProxyType
from typing import Annotated, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.base.batch import Batch, choose
from engram.base.context import MemoryContext
from engram.base.divergence import has_diverged
from engram.base.errors import InputError, NonFiniteLossError
from engram.base.initialization import initialize
from engram.base.interfaces import StoreReport, Summarizer, SummarizingNet
from engram.base.precision import widened
from engram.base.settings import Convert, Count, Decay, Natural, NonNegative
from engram.persistence.state import pad_optimizer_state
from engram.summarize.differentiable_augmentation import (
    AugmentationRanges,
    augment_differentiably,
    draw_augmentation,
)
from engram.summarize.image_optimizer import drift, image_learning_rate, step
from engram.summarize.matching import MATCHING, matching_name
from engram.summarize.queue import ClassQueue

_log = logging.getLogger(__name__)

TOO_FAST, THETA_TOO_FAST = "lower summarize.learning_rate", "lower summarize.theta_learning_rate"
FEWEST_REAL_IMAGES = 8
"""Fewest images that a class is summarized from, if that follows the stream."""
FAST_REAL_IMAGES, FAST_SUMMARY_IMAGES, FAST_THETA_INTERVAL = 16, 5, 2


def sum_of(terms: dict[str, Tensor]) -> Tensor:
    """Return the loss: the sum of its terms, in their order."""
    first, *others = terms.values()
    for term in others:
        first = first + term
    return first


class PastSummaries:
    """θ's features of past summaries, each computed once per round, in which neither changes."""

    def __init__(self, slots: Tensor, theta: SummarizingNet, ctx: MemoryContext) -> None:
        self.ids, self.theta, self.memory = ctx.memory.ids[slots].tolist(), theta, ctx.memory
        self._known: dict[int, Tensor] = {}

    @torch.no_grad()
    def features(self, chosen: list[int]) -> Tensor:
        """Return the features of the summaries with these ids."""
        if missing := [identity for identity in chosen if identity not in self._known]:
            slots = torch.tensor([self.memory.slot_of(identity) for identity in missing])
            self._known.update(zip(missing, widened(self.theta.features(self.memory.read(slots).x)), strict=True))
        return torch.stack([self._known[identity] for identity in chosen])


class StreamSummarizer(Summarizer):
    """Summarizes the current classes in rounds, and trains θ.

    Args:
        interval: number of iterations between rounds (τ), counted from the last arrival of new classes.
        queue: number of recent real images kept of each current class; 0 uses the batch at hand and keeps none.
        ready: number of images a class needs in its queue before it is summarized. "auto" follows the stream: as many
            as the slots of a class, at least 8 and at most a full queue; none is a full queue, as published.
        fast: use cheaper defaults for `real_images`, `summary_images` and `theta_interval`, at a third of the cost
            or less.
        real_images: number of real images drawn from a class's queue at each visit. If not given: all of them, or 16
            with `fast`.
        summary_images: number of summaries of a class that the loss moves at a visit, drawn each time; the others
            move by momentum alone. If not given: all of them, or 5 with `fast`.
        matching: name of the matching loss: "gradients", which is the paper's, or "features", which takes a third of
            its arithmetic.
        gamma: weight of relationship matching (γ).
        anchors: number of past summaries drawn at each visit for relationship matching.
        learning_rate: learning rate of the summaries; the paper's for the slots per class if not given.
        momentum: momentum of the summaries.
        augment: ranges of the differentiable augmentation of real and synthetic images.
        wait_full: start no round before the memory was full once.
        max_current_classes: number of classes kept in the queue; the least recently seen one leaves.
        new_classes: when new classes come, "reinit" initializes θ again, as published; "grow" keeps it and grows its
            head.
        theta_learning_rate: learning rate of θ.
        theta_momentum: momentum of θ.
        theta_batch: number of images in one training step of θ.
        theta_past_images: number of original memory images that join the stream batch to train θ.
        theta_interval: number of iterations between training steps of θ. If not given: 1, or 2 with `fast`.
    """

    needs = frozenset({"claims"})
    recorded = MappingProxyType({"ready": None})

    def __init__(
        self,
        interval: Count = 6,
        queue: Natural = 64,
        ready: Count | Literal["auto"] | None = "auto",
        fast: bool = False,
        real_images: Count | None = None,
        summary_images: Count | None = None,
        matching: Annotated[str, Convert(matching_name, "the name of a matching loss")] = "gradients",
        gamma: NonNegative = 1.0,
        anchors: Natural = 10,
        learning_rate: NonNegative | None = None,
        momentum: Decay = 0.9,
        augment: AugmentationRanges = AugmentationRanges(),
        wait_full: bool = False,
        max_current_classes: Count = 20,
        new_classes: Literal["reinit", "grow"] = "reinit",
        theta_learning_rate: NonNegative = 0.01,
        theta_momentum: Decay = 0.9,
        theta_batch: Count = 10,
        theta_past_images: Natural = 10,
        theta_interval: Count | None = None,
    ) -> None:
        if fast:
            real_images = FAST_REAL_IMAGES if real_images is None else real_images
            summary_images = FAST_SUMMARY_IMAGES if summary_images is None else summary_images
            theta_interval = FAST_THETA_INTERVAL if theta_interval is None else theta_interval
        theta_interval = 1 if theta_interval is None else theta_interval
        if isinstance(ready, int) and ready > max(queue, 1):
            raise InputError(f"ready is {ready}, more than the {queue} images of the queue: need at most that many")
        self.matching = MATCHING[matching]()
        self.interval, self.ready = interval, ready
        self.real_images, self.summary_images = real_images, summary_images
        self.gamma, self.anchors = gamma, anchors
        self.learning_rate, self.momentum, self.augment = learning_rate, momentum, augment
        self.wait_full, self.new_classes = wait_full, new_classes
        self.theta_learning_rate, self.theta_momentum = theta_learning_rate, theta_momentum
        self.theta_batch, self.theta_past_images, self.theta_interval = theta_batch, theta_past_images, theta_interval
        self.add_state("queue", ClassQueue(queue, max_current_classes))
        self.add_state("working", {}, count_as="working_copies")
        self.add_state("age", 0)
        self.add_state("boundary_passed", False)
        self.add_state("rounds", 0)
        self.queue: ClassQueue
        self.working: dict[int, dict[str, Tensor]]
        """The float copy that the optimizer moves and its velocity, by image id."""
        self.age: int
        """Number of iterations since the last reset, without this one."""
        self.boundary_passed: bool
        """Whether a task ended since the last reset."""
        self._told_of_lost = self._told_of_none = False
        self.last_losses: dict[str, float] = {}
        """The terms of the loss, each a mean over the classes of the last round."""

    def build(self, theta: SummarizingNet) -> None:
        self.add_state("theta", theta, count_as="theta")
        self.theta: SummarizingNet = theta
        theta.zero_grad()
        optimizer = torch.optim.SGD(theta.parameters(), lr=self.theta_learning_rate, momentum=self.theta_momentum)
        self.add_state("theta_optimizer", optimizer, count_as="optimizer")
        self.theta_optimizer = optimizer

    def check_restored(self, ctx: MemoryContext) -> None:
        shape = ctx.memory.shape
        self.queue.check(shape)
        for identity, copy in self.working.items():
            if copy.keys() != {"image", "velocity"}:
                raise ValueError(f"a working copy of image {identity} with {sorted(copy)} cannot be")
            if any((tensor.dtype, tensor.shape) != (torch.float32, shape) for tensor in copy.values()):
                raise ValueError(f"the working copy of image {identity} is not of shape {tuple(shape)}")
        with torch.no_grad():
            self.theta(torch.zeros(1, *shape, device=next(self.theta.parameters()).device))

    def on_boundary(self, ctx: MemoryContext) -> None:
        self.tell_if_idle(ctx)
        self.boundary_passed = True

    def on_new_classes(self, new: list[int], ctx: MemoryContext) -> None:
        self.theta.grow(ctx.classes, ctx.rng["theta"])
        if self.new_classes == "grow" or (len(new) < ctx.classes and not self.boundary_passed):
            pad_optimizer_state(self.theta_optimizer)
            return
        initialize(self.theta, ctx.rng["theta"])
        self.theta_optimizer.state.clear()
        self.queue.clear()
        self.working.clear()
        self.age = 0
        self.boundary_passed = False

    def push(self, stream: Batch, ctx: MemoryContext) -> None:
        self.queue.push(stream)

    def most_bytes(self, ctx: MemoryContext) -> int:
        copies = 2 * ctx.memory.pixels * torch.float32.itemsize * ctx.slots_per_class * len(self.queue.classes)
        return self.queue.most_bytes() + copies

    def after_store(self, stream: Batch, report: StoreReport, ctx: MemoryContext) -> None:
        with ctx.clock("summarize"):
            if self.age % self.interval == 0 and (ctx.memory.has_filled or not self.wait_full):
                self._round(self._ready_classes(report, ctx), ctx)
        if self.age % self.theta_interval == 0:
            with ctx.clock("theta"):
                self._train_theta(stream, ctx)
        if not self.queue.capacity:
            self.queue.clear()
        self.age += 1

    def _ready_classes(self, report: StoreReport, ctx: MemoryContext) -> list[int]:
        """Return the classes, ascending, that have enough real images and all their slots, none claimed just now."""
        memory = ctx.memory
        quota = min(ctx.slots_per_class, max(1, memory.capacity // ctx.classes))
        claiming = set(memory.labels[report.claimed].tolist())
        ready = self._images_needed(ctx)
        queued = [label for label in self.queue.classes if self.queue.count(label) >= ready]
        if not queued and self.queue.lost > ready * self.queue.max_classes and not self._told_of_lost:
            self._told_of_lost = True
            _log.warning(
                "no class stays in the queue until it has the %d images it is summarized from: more than %d classes "
                "come in turn. Raise summarize.max_current_classes, or lower summarize.ready",
                *(ready, self.queue.max_classes),
            )
        waiting = [label for label in queued if label not in claiming]
        return [label for label in waiting if memory.limit.owns_share(memory, label, quota, ctx.classes)]

    def _images_needed(self, ctx: MemoryContext) -> int:
        """Return the number of images that a class needs in its queue before it is summarized."""
        full = max(self.queue.capacity, 1)
        if self.ready == "auto":
            return min(full, max(FEWEST_REAL_IMAGES, ctx.slots_per_class))
        return self.ready or full

    def tell_if_idle(self, ctx: MemoryContext) -> None:
        if self.rounds or self._told_of_none or ctx.memory.seen <= ctx.memory.size:
            return
        self._told_of_none = True
        needed = self._images_needed(ctx)
        most = max(map(self.queue.count, self.queue.classes), default=0)
        if most < needed:
            reason = f"a class needs {needed} images in its queue, and none has more than {most}"
            remedy = "lower summarize.ready, or use a method without +ssd"
        else:
            reason = "no class has all of its slots"
            remedy = "lower slots_per_class, or give the memory more room (memory_size or memory_bytes)"
        _log.warning("nothing was summarized so far, because %s: %s", reason, remedy)

    def _round(self, classes: list[int], ctx: MemoryContext) -> None:
        if not classes:
            return
        memory = ctx.memory
        current = torch.isin(memory.labels, torch.tensor(self.queue.classes))
        past = PastSummaries((memory.claimed & ~current).nonzero().flatten(), self.theta, ctx)
        rate = self.learning_rate if self.learning_rate is not None else image_learning_rate(ctx.slots_per_class)
        waiting = self._sync_working_copies(ctx)
        losses = []
        for position, label in enumerate(classes):
            slots = self._visited(memory.claimed_by(label), ctx)
            identities = memory.ids[slots].tolist()
            copies = [self.working[identity] for identity in identities]
            waiting -= set(identities)
            images = torch.stack([copy["image"] for copy in copies])
            velocity = torch.stack([copy["velocity"] for copy in copies])
            drift(images, velocity, position, rate, self.momentum)
            gradient, loss = self._gradient(images, label, past, ctx)
            if not all(math.isfinite(value) for value in loss.values()):
                raise NonFiniteLossError(f"the loss of a summary is {loss} at batch {ctx.iteration}: {TOO_FAST}")
            step(images, velocity, gradient, rate, self.momentum)
            if not images.isfinite().all():
                raise NonFiniteLossError(f"a summary is infinite at batch {ctx.iteration}: {TOO_FAST}")
            memory.rewrite(slots, images)
            drift(images, velocity, len(classes) - 1 - position, rate, self.momentum)
            for copy, image, its_velocity in zip(copies, images, velocity, strict=True):
                copy["image"], copy["velocity"] = image.clone(), its_velocity.clone()
            losses.append(loss)
        for identity in waiting:
            copy = self.working[identity]
            drift(copy["image"], copy["velocity"], len(classes), rate, self.momentum)
        self.rounds += 1
        self.last_losses = {name: sum(loss[name] for loss in losses) / len(losses) for name in losses[0]}

    def _sync_working_copies(self, ctx: MemoryContext) -> set[int]:
        """Give each image claimed by a current class a working copy, drop the others, and return the ids held."""
        memory = ctx.memory
        slots = {
            int(memory.ids[slot]): slot for label in self.queue.classes for slot in memory.claimed_by(label).tolist()
        }
        for identity in self.working.keys() - slots.keys():
            del self.working[identity]
        for identity in sorted(slots.keys() - self.working.keys()):
            image = memory.read(torch.tensor([slots[identity]])).x[0]
            self.working[identity] = {"image": image, "velocity": torch.zeros_like(image)}
        return set(slots)

    def _gradient(
        self, images: Tensor, label: int, past: PastSummaries, ctx: MemoryContext
    ) -> tuple[Tensor, dict[str, float]]:
        """Return ∂L_s/∂M_c, and the terms of the loss by name."""
        real = self._augmented(self._real_images(label, ctx).to(images.device), ctx)
        target = self.matching.target(self.theta, real, label)
        synthetic = images.clone().requires_grad_()
        augmented = self._augmented(synthetic, ctx)
        anchors = self._anchors(past, ctx)
        terms = self.matching.terms(self.theta, augmented, label, target, anchors, self.gamma)
        (gradient,) = torch.autograd.grad(sum_of(terms), synthetic)
        return gradient, {name: float(term.detach()) for name, term in terms.items()}

    def _visited(self, slots: Tensor, ctx: MemoryContext) -> Tensor:
        if self.summary_images is None or len(slots) <= self.summary_images:
            return slots
        return slots[choose(self.summary_images, len(slots), ctx.rng["summarize"])]

    def _real_images(self, label: int, ctx: MemoryContext) -> Tensor:
        if self.real_images is None:
            return self.queue.read(label)
        return self.queue.read(label, choose(self.real_images, self.queue.count(label), ctx.rng["summarize"]))

    def _augmented(self, images: Tensor, ctx: MemoryContext) -> Tensor:
        if not self.augment.enabled:
            return images
        draw = draw_augmentation(len(images), images.shape[-1], ctx.rng["summarize"], self.augment)
        return augment_differentiably(images, draw)

    def _anchors(self, past: PastSummaries, ctx: MemoryContext) -> Tensor | None:
        if not past.ids or not self.gamma or not self.anchors:
            return None
        chosen = choose(self.anchors, len(past.ids), ctx.rng["summarize"])
        return past.features([past.ids[position] for position in chosen.tolist()])

    def _train_theta(self, stream: Batch, ctx: MemoryContext) -> None:
        real = ctx.memory.real_images()
        chosen = real[choose(self.theta_past_images, len(real), ctx.rng["theta"])]
        batch = Batch.join(stream, ctx.memory.read(chosen) if len(chosen) else None)
        shuffled = choose(len(batch), len(batch), ctx.rng["theta"])
        for part in shuffled.split(self.theta_batch):
            loss = F.cross_entropy(widened(self.theta(batch.x[part])), batch.y[part])
            if not math.isfinite(value := float(loss.detach())):
                raise NonFiniteLossError(f"theta's loss is {value} at batch {ctx.iteration}: {THETA_TOO_FAST}")
            loss.backward()
            self.theta_optimizer.step()
            self.theta_optimizer.zero_grad()
        if has_diverged(self.theta):
            raise NonFiniteLossError(f"theta's numbers grew without bound at batch {ctx.iteration}: {THETA_TOO_FAST}")
