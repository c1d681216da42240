"""Supervised contrastive replay (Mai et al., 2021).

L = mean over 2N anchors i of  −mean over positives p of  log( e^{z_i·z_p/T} / Σ_{a≠i} e^{z_i·z_a/T} )
with N stream and replay images, two views each, z the L2-normalized projection.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.augmentations.view import ViewAugmentation, augment_view
from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.interfaces import Scheme
from engram.base.model import Model, Parameters
from engram.base.rng import Randomness
from engram.base.settings import Count, NonNegative, Positive


def supervised_contrastive_loss(projections: Tensor, labels: Tensor, temperature: float = 0.07) -> Tensor:
    """Return the loss above.

    Args:
        projections: L2-normalized projections (M,D) of all views.
        labels: labels (M,). Every label must occur twice at least, as it does with two views per image.
        temperature: T of the loss.
    """
    others = ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    positives = (labels[:, None] == labels) & others
    similarity = projections @ projections.T / temperature
    log_probability = similarity - similarity.masked_fill(~others, -torch.inf).logsumexp(1, keepdim=True)
    return -((log_probability * positives).sum(1) / positives.sum(1)).mean()


class SupervisedContrastiveReplay(Scheme):
    """Contrasts the images of the stream and of a large replay batch, raw and augmented, one forward pass per view.

    No step is taken while the memory is empty.

    Args:
        replay: number of memory images replayed in one step.
        temperature: temperature of the loss (T).
        projection: width of the projection.
        learning_rate: learning rate of SGD on the net.
        augment: augmentation that makes the second view.
    """

    provides = frozenset({"replay"})

    def __init__(
        self,
        replay: Count = 100,
        temperature: Positive = 0.07,
        projection: Count = 128,
        learning_rate: NonNegative = 0.1,
        augment: ViewAugmentation = ViewAugmentation(),
    ) -> None:
        self.replay, self.temperature, self.projection = replay, temperature, projection
        self.learning_rate, self.augment = learning_rate, augment

    def build(self, model: Model, rng: Randomness) -> torch.optim.Optimizer:
        width = model.feature_width
        model.add_head(
            "projection",
            lambda: nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, self.projection)),
            rng["init"],
        )
        return torch.optim.SGD(model.parameters(), lr=self.learning_rate)

    def replay_size(self, ctx: StepContext) -> int:
        return self.replay

    def loss(self, stream: Batch, replay: Batch | None, ctx: StepContext) -> Tensor | None:
        if replay is None:
            return None
        batch = Batch.join(replay, stream)
        views = [batch.x, augment_view(batch.x, self.augment, ctx.rng["augment"])]
        projections = [self.project(view, ctx.model) for view in views]
        return supervised_contrastive_loss(torch.cat(projections), batch.y.repeat(2), self.temperature)

    def project(self, x: Tensor, model: Model, params: Parameters | None = None) -> Tensor:
        """Return the L2-normalized projections of the images."""
        return F.normalize(model.outputs(x, "projection", params=params)[1], dim=1)

    def class_scores(self, x: Tensor, ctx: StepContext, params: Parameters | None = None) -> Tensor:
        """Return cosines between the projection and each class's mean projection in memory, over the temperature.

        They stand in for logits, which this scheme does not have. A class without an image in memory scores 0.
        """
        memory = ctx.memory.read(ctx.memory.filled())
        with ctx.model.evaluating():
            sums = memory.x.new_zeros(ctx.classes, self.projection)
            sums.index_add_(0, memory.y, self.project(memory.x, ctx.model))
        return self.project(x, ctx.model, params) @ F.normalize(sums, dim=1).T / self.temperature
