"""SSD's summarizer (Gu et al., 2024): summaries are optimised so that θ's gradients on them, and their relation to past
summaries, match those of the stream.

For each current class c, with real images from the queue and synthetic images M_c:
    L_s = L_g(∇θ CE(real), ∇θ CE(M_c)) + γ L_r          M_c ← SGD with momentum on L_s, through θ's gradient
θ itself learns from the stream and from original images in the memory, never from a summary.
"""

from __future__ import annotations

import logging
import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.core import Batch, Context, StoreReport, Summarizer, SummarizingNet, choose
from engram.errors import InputError, NonFiniteLossError
from engram.initialise import initialise
from engram.state import Tree, pad_optimizer_state
from engram.summarize.augment import AugmentationRanges, augment, draw_augmentation
from engram.summarize.image_optimizer import drift, image_learning_rate, step
from engram.summarize.matching import matching_target, summarizing_loss
from engram.summarize.queue import ClassQueue

_log = logging.getLogger(__name__)

FAST_REAL_IMAGES, FAST_SUMMARY_IMAGES, FAST_THETA_INTERVAL = 16, 5, 2


class PastSummaries:
    """θ's features of past summaries, each computed once a round: θ and they stay as they are within it."""

    def __init__(self, slots: Tensor, theta: SummarizingNet, ctx: Context) -> None:
        self.ids, self.theta, self.memory = ctx.memory.ids[slots].tolist(), theta, ctx.memory
        self._known: dict[int, Tensor] = {}

    @torch.no_grad()
    def features(self, chosen: list[int]) -> Tensor:
        """Of the summaries with these ids."""
        if missing := [identity for identity in chosen if identity not in self._known]:
            slots = torch.tensor([self.memory.slot_of(identity) for identity in missing])
            self._known.update(zip(missing, self.theta.features(self.memory.read(slots).x), strict=True))
        return torch.stack([self._known[identity] for identity in chosen])


class StreamSummarizer(Summarizer):
    """Rounds of summarizing over the current classes, and the training of θ.

    Args:
        interval: iterations between rounds (τ), counted from the last arrival of new classes.
        queue: most recent real images kept for each current class; 0 to use those of the batch at hand and keep none.
        ready: images a class needs in its queue before it is summarized; the whole queue if not given (of none, one).
        fast: summarize by the cheaper defaults of `real_images`, `summary_images` and `theta_interval`: a third of the
            cost or less.
        real_images: real images drawn from a class's queue at each visit; all of them, or 16 if `fast`, if not given.
        summary_images: summaries of a class moved by the loss at a visit, drawn anew, the others by momentum alone;
            all of them, or 5 if `fast`, if not given.
        gamma: weight of relationship matching (γ).
        anchors: past summaries drawn at each class visit for relationship matching.
        learning_rate: of the summaries; the paper's by slots per class if not given.
        momentum: of the summaries.
        augment: the differentiable augmentation of real and synthetic images.
        wait_full: no round before the memory has filled once.
        max_current_classes: classes kept in the queue; the least recently seen leaves.
        new_classes: on new classes, re-initialise θ by PyTorch's defaults as published, or keep it and grow its head.
        theta_learning_rate: of θ.
        theta_momentum: of θ.
        theta_batch: images of one step of θ.
        theta_past_images: original images from the memory that join the stream batch to train θ.
        theta_interval: iterations between the training of θ; 1, or 2 if `fast`, if not given.
    """

    needs = frozenset({"claims"})

    def __init__(
        self,
        interval: int = 6,
        queue: int = 64,
        ready: int | None = None,
        fast: bool = False,
        real_images: int | None = None,
        summary_images: int | None = None,
        gamma: float = 1.0,
        anchors: int = 10,
        learning_rate: float | None = None,
        momentum: float = 0.9,
        augment: AugmentationRanges = AugmentationRanges(),
        wait_full: bool = False,
        max_current_classes: int = 20,
        new_classes: Literal["reinit", "grow"] = "reinit",
        theta_learning_rate: float = 0.01,
        theta_momentum: float = 0.9,
        theta_batch: int = 10,
        theta_past_images: int = 10,
        theta_interval: int | None = None,
    ) -> None:
        if fast:
            real_images = FAST_REAL_IMAGES if real_images is None else real_images
            summary_images = FAST_SUMMARY_IMAGES if summary_images is None else summary_images
            theta_interval = FAST_THETA_INTERVAL if theta_interval is None else theta_interval
        theta_interval = 1 if theta_interval is None else theta_interval
        if interval < 1 or queue < 0 or not 1 <= (max(queue, 1) if ready is None else ready) <= max(queue, 1):
            raise InputError(
                f"interval {interval}, queue {queue}, ready {ready}: need interval ≥ 1, queue ≥ 0, 1 ≤ ready ≤ queue"
            )
        if not 0 <= momentum < 1:
            raise InputError(f"momentum is {momentum}: need 0 ≤ momentum < 1")
        if min(max_current_classes, theta_batch) < 1 or min(anchors, theta_past_images) < 0:
            raise InputError(
                f"max_current_classes {max_current_classes}, theta_batch {theta_batch}: need at least 1; "
                f"anchors {anchors}, theta_past_images {theta_past_images}: need at least 0"
            )
        if any(number is not None and number < 1 for number in (real_images, summary_images, theta_interval)):
            raise InputError(
                f"real_images {real_images}, summary_images {summary_images}, theta_interval {theta_interval}: "
                "need at least 1 of each"
            )
        if new_classes not in ("reinit", "grow"):
            raise InputError(f"new_classes is {new_classes!r}: choose 'reinit' or 'grow'")
        self.interval, self.ready = interval, ready or max(queue, 1)
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
        """By image id: the float copy the optimizer moves, and its velocity."""
        self.age: int
        """Iterations since the last reset, this one excluded."""
        self.boundary_passed: bool
        """Whether a task ended since the last reset."""
        self._told_of_lost = False
        self.last_losses: dict[str, float] = {}
        """Mean L_g and γ L_r over the classes of the last round."""

    def build(self, theta: SummarizingNet) -> None:
        self.add_state("theta", theta, count_as="theta")
        self.theta: SummarizingNet = theta
        theta.zero_grad()
        optimizer = torch.optim.SGD(theta.parameters(), lr=self.theta_learning_rate, momentum=self.theta_momentum)
        self.add_state("theta_optimizer", optimizer, count_as="optimizer")
        self.theta_optimizer = optimizer

    def load_state(self, tree: Tree) -> None:
        super().load_state(tree)
        device = next(self.theta.parameters()).device if "theta" in self.declared else torch.device("cpu")
        self.working = {
            slot: {name: tensor.to(device) for name, tensor in copy.items()} for slot, copy in self.working.items()
        }

    def check_restored(self, ctx: Context) -> None:
        shape = ctx.memory.shape
        self.queue.check(shape)
        for identity, copy in self.working.items():
            if copy.keys() != {"image", "velocity"}:
                raise ValueError(f"a working copy of image {identity} with {sorted(copy)} cannot be")
            if any((tensor.dtype, tensor.shape) != (torch.float32, shape) for tensor in copy.values()):
                raise ValueError(f"the working copy of image {identity} is not of shape {tuple(shape)}")
        with torch.no_grad():
            self.theta(torch.zeros(1, *shape, device=next(self.theta.parameters()).device))

    def on_boundary(self, ctx: Context) -> None:
        self.boundary_passed = True

    def on_new_classes(self, new: list[int], ctx: Context) -> None:
        self.theta.grow(ctx.classes, ctx.rng["theta"])
        if self.new_classes == "grow" or (len(new) < ctx.classes and not self.boundary_passed):
            pad_optimizer_state(self.theta_optimizer)
            return
        initialise(self.theta, ctx.rng["theta"])
        self.theta_optimizer.state.clear()
        self.queue.clear()
        self.working.clear()
        self.age = 0
        self.boundary_passed = False

    def push(self, stream: Batch, ctx: Context) -> None:
        self.queue.push(stream)

    def after_store(self, stream: Batch, report: StoreReport, ctx: Context) -> None:
        with ctx.clock("summarize"):
            if self.age % self.interval == 0 and (ctx.memory.has_filled or not self.wait_full):
                self._round(self._ready_classes(report, ctx), ctx)
        if self.age % self.theta_interval == 0:
            with ctx.clock("theta"):
                self._train_theta(stream, ctx)
        if not self.queue.capacity:
            self.queue.clear()
        self.age += 1

    def _ready_classes(self, report: StoreReport, ctx: Context) -> list[int]:
        """Classes with enough real images and all their slots, none of them claimed just now; ascending."""
        memory = ctx.memory
        quota = min(ctx.slots_per_class, max(1, memory.capacity // ctx.classes))
        claiming = set(memory.labels[report.claimed].tolist())
        queued = [label for label in self.queue.classes if self.queue.count(label) >= self.ready]
        if not queued and self.queue.lost > self.ready * self.queue.max_classes and not self._told_of_lost:
            self._told_of_lost = True
            _log.warning(
                "no class stays in the queue until it has the %d images it is summarized from: more than %d classes "
                "come in turn. Raise summarize.max_current_classes, or lower summarize.ready",
                *(self.ready, self.queue.max_classes),
            )
        return [label for label in queued if label not in claiming and memory.owns_share(label, quota, ctx.classes)]

    def _round(self, classes: list[int], ctx: Context) -> None:
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
                raise NonFiniteLossError(
                    f"summarizing gave a loss of {loss} at batch {ctx.iteration}: lower its learning_rate"
                )
            step(images, velocity, gradient, rate, self.momentum)
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

    def _sync_working_copies(self, ctx: Context) -> set[int]:
        """Give each image claimed by a current class a working copy, drop the others; returns the ids held."""
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
        self, images: Tensor, label: int, past: PastSummaries, ctx: Context
    ) -> tuple[Tensor, dict[str, float]]:
        """∂L_s/∂M_c, and the two losses."""
        real = self._augmented(self._real_images(label, ctx).to(images.device), ctx)
        target = matching_target(self.theta, real, label)
        synthetic = images.clone().requires_grad_()
        augmented = self._augmented(synthetic, ctx)
        anchors = self._anchors(past, ctx)
        matching, relation = summarizing_loss(self.theta, augmented, label, target, anchors, self.gamma)
        (gradient,) = torch.autograd.grad(matching + relation, synthetic)
        return gradient, {"gradient_matching": float(matching.detach()), "relationship": float(relation.detach())}

    def _visited(self, slots: Tensor, ctx: Context) -> Tensor:
        if self.summary_images is None or len(slots) <= self.summary_images:
            return slots
        return slots[choose(self.summary_images, len(slots), ctx.rng["summarize"])]

    def _real_images(self, label: int, ctx: Context) -> Tensor:
        if self.real_images is None:
            return self.queue.read(label)
        return self.queue.read(label, choose(self.real_images, self.queue.count(label), ctx.rng["summarize"]))

    def _augmented(self, images: Tensor, ctx: Context) -> Tensor:
        return augment(images, draw_augmentation(len(images), images.shape[-1], ctx.rng["summarize"], self.augment))

    def _anchors(self, past: PastSummaries, ctx: Context) -> Tensor | None:
        if not past.ids or not self.gamma or not self.anchors:
            return None
        chosen = choose(self.anchors, len(past.ids), ctx.rng["summarize"])
        return past.features([past.ids[position] for position in chosen.tolist()])

    def _train_theta(self, stream: Batch, ctx: Context) -> None:
        real = ctx.memory.real_images()
        chosen = real[choose(self.theta_past_images, len(real), ctx.rng["theta"])]
        batch = Batch.join(stream, ctx.memory.read(chosen) if len(chosen) else None)
        shuffled = choose(len(batch), len(batch), ctx.rng["theta"])
        for part in shuffled.split(self.theta_batch):
            loss = F.cross_entropy(self.theta(batch.x[part]), batch.y[part])
            if not math.isfinite(float(loss.detach())):
                raise NonFiniteLossError(
                    f"theta's loss became {float(loss.detach())} at batch {ctx.iteration}: lower theta_learning_rate"
                )
            loss.backward()
            self.theta_optimizer.step()
            self.theta_optimizer.zero_grad()
