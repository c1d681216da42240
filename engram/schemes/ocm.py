"""Online continual learning through mutual information maximization (Guo et al., 2022).

Each image becomes 16 (halves turned, then the whole turned), and each transform has labels of its own. With S the
similarity of projections (plus that of projection and a slice of the feature) and
ℓ_ij = −log( e^{S_ij/T} / Σ_j e^{S_ij/T} + 1e-8 ):
stream:    mean_i ℓ_{i,twin(i)} + 2 · mean_i mean_{same label} ℓ_ij    (e^{S_ii/T} taken as 0)
memory:    mean_i mean_{same label} ℓ_ij
previous:  the same between projections of now and of the net at the last boundary
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.augmentations.view import ViewAugmentation, augment_view
from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.model import LOGITS, Model
from engram.base.rng import Randomness
from engram.base.settings import Count, Decay, Natural, NonNegative, Positive
from engram.base.snapshot import Snapshot
from engram.schemes.labelled import LabelScheme

PROJECTION = "projection"
TRANSFORMS = 16


def sixteen_transforms(images: Tensor) -> Tensor:
    """Return 16·N images, transform by transform: (L,R), (L,R↻), (L↻,R↻), (L↻,R), each turned by 0 to 270 degrees.

    L and R are the halves of the image, ↻ turns one by 180 degrees in place.
    """
    left, right = images.tensor_split(2, dim=3)
    left_turned, right_turned = left.flip(2, 3), right.flip(2, 3)
    pairs = [(left, right), (left, right_turned), (left_turned, right_turned), (left_turned, right)]
    mixed = [torch.cat(pair, dim=3) for pair in pairs]
    return torch.cat([image.rot90(turns, (2, 3)) for image in mixed for turns in range(4)])


def sixteen_labels(labels: Tensor) -> Tensor:
    """Return the labels of the 16 transforms of each image; no two transforms share a label."""
    return torch.cat([labels * TRANSFORMS + transform for transform in range(TRANSFORMS)])


def pair_losses(similarity: Tensor, temperature: float, *, keep_self: bool) -> Tensor:
    """Return ℓ for every pair. Without `keep_self` the similarity of an image to itself counts as -inf."""
    logits = similarity / temperature
    if not keep_self:
        logits = logits.masked_fill(torch.eye(len(logits), dtype=torch.bool, device=logits.device), -torch.inf)
    return -(logits.softmax(1) + 1e-8).log()


def same_label_loss(losses: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return mean_i mean_{same label} ℓ_ij. The image itself has its own label, so it is one of those averaged."""
    same = rows[:, None] == columns
    return ((losses * same).sum(1) / same.sum(1)).mean()


def stream_information_loss(similarity: Tensor, labels: Tensor, temperature: float = 0.07) -> Tensor:
    """Return the stream term; the first half of the rows are first views, the second half second views.

    As published, the mean over the same label also counts the image itself. Its ℓ_ii is a constant, so it only lowers
    the weight of the others.
    """
    losses = pair_losses(similarity, temperature, keep_self=False)
    twin = torch.arange(len(labels), device=labels.device).roll(len(labels) // 2)
    to_twin = losses.gather(1, twin[:, None]).mean()
    return to_twin + 2 * same_label_loss(losses, labels, labels)


def memory_information_loss(similarity: Tensor, rows: Tensor, columns: Tensor, temperature: float = 0.07) -> Tensor:
    """Return the memory term, also used for the term against the previous net."""
    return same_label_loss(pair_losses(similarity, temperature, keep_self=True), rows, columns)


class MutualInformationMaximization(LabelScheme):
    """Trains by Adam to keep all features of the stream and of the memory, not only those that tell classes apart.

    Args:
        replay: largest number of memory images replayed in one step.
        replay_per_class: largest number of them per class seen.
        temperature: temperature of the similarities (T).
        projection: width of the linear projector; at most the number of features.
        learning_rate: learning rate of Adam.
        betas: decay rates of Adam's two moment estimates.
        weight_decay: weight decay of Adam.
        augment: augmentation that makes the second view, and the images of the label losses.
    """

    provides = frozenset({"logits", "replay"})
    images_only = True

    def __init__(
        self,
        replay: Natural = 64,
        replay_per_class: Natural = 7,
        temperature: Positive = 0.07,
        projection: Count = 128,
        learning_rate: NonNegative = 1e-3,
        betas: tuple[Decay, Decay] = (0.9, 0.99),
        weight_decay: NonNegative = 1e-4,
        augment: ViewAugmentation = ViewAugmentation(crop="aligned", crop_scale=(0.3, 1.0), jitter=0.0, gray=0.25),
    ) -> None:
        super().__init__(learning_rate)
        self.replay, self.replay_per_class = replay, replay_per_class
        self.temperature, self.projection, self.augment = temperature, projection, augment
        self.betas, self.weight_decay = betas, weight_decay
        self.add_state("finished_classes", 0)
        self.finished_classes: int
        """Classes known at the last boundary."""

    def build(self, model: Model, rng: Randomness) -> torch.optim.Optimizer:
        model.add_classifier(rng["init"])
        width = min(self.projection, model.feature_width)
        model.add_head(PROJECTION, lambda: torch.nn.Linear(model.feature_width, width), rng["init"])
        self.add_state("previous", Snapshot(model))
        self.previous: Snapshot
        return torch.optim.Adam(
            model.parameters(), lr=self.learning_rate, betas=self.betas, weight_decay=self.weight_decay
        )

    def on_boundary(self, ctx: StepContext) -> None:
        self.previous.take(ctx.model)
        self.finished_classes = ctx.classes

    def check_restored(self, ctx: StepContext) -> None:
        if not 0 <= self.finished_classes <= ctx.classes:
            raise ValueError(f"{self.finished_classes} finished classes of {ctx.classes} cannot be")
        self.previous.require_classes(self.finished_classes, ctx.model)

    def replay_size(self, ctx: StepContext) -> int:
        return min(self.replay, self.replay_per_class * ctx.classes) if self.finished_classes else 0

    def loss(self, stream: Batch, replay: Batch | None, ctx: StepContext) -> Tensor:
        views, labels = self._views(stream, ctx)
        if replay is None:
            features, projections = ctx.model.outputs(views, PROJECTION)
            similarity = self._similarity(features, projections, ctx)
            label_loss = F.cross_entropy(ctx.model.logits(self._augmented(stream, ctx)), stream.y)
            return stream_information_loss(similarity, labels, self.temperature) + label_loss
        memory_views, memory_labels = self._views(replay, ctx)
        features, projections = ctx.model.outputs(torch.cat([views, memory_views]), PROJECTION)
        cut = [len(views), len(memory_views)]
        stream_part, memory_part = zip(features.split(cut), projections.split(cut), strict=True)
        first_views = len(memory_views) // 2
        return (
            stream_information_loss(self._similarity(*stream_part, ctx), labels, self.temperature)
            + memory_information_loss(
                self._similarity(*memory_part, ctx), memory_labels, memory_labels, self.temperature
            )
            + self._previous_loss(memory_part[1][:first_views], memory_views[:first_views], memory_labels[:first_views])
            + self._replay_loss(replay, ctx)
        )

    def _views(self, batch: Batch, ctx: StepContext) -> tuple[Tensor, Tensor]:
        first = sixteen_transforms(batch.x)
        second = augment_view(first, self.augment, ctx.rng["augment"])
        return torch.cat([first, second]), sixteen_labels(batch.y).repeat(2)

    def _similarity(self, features: Tensor, projections: Tensor, ctx: StepContext) -> Tensor:
        projections, features = F.normalize(projections, dim=1), F.normalize(features, dim=1)
        width = projections.shape[1]
        offsets = max(1, features.shape[1] - width)
        start = int(torch.randint(offsets, (1,), generator=ctx.rng["slice"]))
        return projections @ projections.T + projections @ features[:, start : start + width].T

    def _previous_loss(self, projections: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        with torch.no_grad():
            before = F.normalize(self.previous.net(images, PROJECTION)[1], dim=1)
        similarity = F.normalize(projections, dim=1) @ before.T
        return memory_information_loss(similarity, labels, labels, self.temperature)

    def _replay_loss(self, replay: Batch, ctx: StepContext) -> Tensor:
        """Return cross-entropy plus distance to the previous net's logits; as published, each net has its own draw."""
        logits = ctx.model.logits(self._augmented(replay, ctx))
        with torch.no_grad():
            before = self.previous.net(self._augmented(replay, ctx), LOGITS)[1]
        known = slice(0, self.finished_classes)
        return F.cross_entropy(logits, replay.y) + F.mse_loss(logits[:, known], before[:, known])

    def _augmented(self, batch: Batch, ctx: StepContext) -> Tensor:
        return augment_view(batch.x, self.augment, ctx.rng["augment"])
