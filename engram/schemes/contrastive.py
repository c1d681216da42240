"""Supervised contrastive replay (Mai et al., 2021).

L = mean over 2N anchors i of  −mean over positives p of  log( e^{z_i·z_p/T} / Σ_{a≠i} e^{z_i·z_a/T} )
with N stream and replay images, two views each, z the L2-normalised projection.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core import Batch, Context, Model, Parameters, Randomness, Scheme
from engram.errors import require_at_least
from engram.schemes.augmentation import ViewAugmentation, augment_view


def supervised_contrastive_loss(projections: Tensor, labels: Tensor, temperature: float = 0.07) -> Tensor:
    """The loss above for L2-normalised projections (M,D) of all views and their labels (M,); every anchor needs a
    positive, which two views an image ensure."""
    others = ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    positives = (labels[:, None] == labels) & others
    similarity = projections @ projections.T / temperature
    log_probability = similarity - similarity.masked_fill(~others, -torch.inf).logsumexp(1, keepdim=True)
    return -((log_probability * positives).sum(1) / positives.sum(1)).mean()


class SupervisedContrastiveReplay(Scheme):
    """Contrasts the stream and a large replay batch, each image raw and augmented, each view in a pass of its own.

    No step is taken while the memory is empty.

    Args:
        replay: memory images of one step.
        temperature: T of the loss.
        projection: width of the projection.
        learning_rate: of the net.
        augment: the second view.
    """

    provides = frozenset({"replay"})

    def __init__(
        self,
        replay: int = 100,
        temperature: float = 0.07,
        projection: int = 128,
        learning_rate: float = 0.1,
        augment: ViewAugmentation = ViewAugmentation(),
    ) -> None:
        require_at_least(1, replay=replay)
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

    def replay_size(self, ctx: Context) -> int:
        return self.replay

    def loss(self, stream: Batch, replay: Batch | None, ctx: Context) -> Tensor | None:
        if replay is None:
            return None
        batch = Batch.join(replay, stream)
        views = [batch.x, augment_view(batch.x, self.augment, ctx.rng["augment"])]
        projections = [self.project(view, ctx.model) for view in views]
        return supervised_contrastive_loss(torch.cat(projections), batch.y.repeat(2), self.temperature)

    def project(self, x: Tensor, model: Model, params: Parameters | None = None) -> Tensor:
        """L2-normalised projections."""
        return F.normalize(model.outputs(x, "projection", params=params)[1], dim=1)

    def class_scores(self, x: Tensor, ctx: Context, params: Parameters | None = None) -> Tensor:
        """Cosines of the projection to each class's mean projection in memory, over the temperature; this scheme has no
        logits. A class without an image in memory scores 0."""
        memory = ctx.memory.read(ctx.memory.filled())
        with ctx.model.evaluating():
            sums = memory.x.new_zeros(ctx.classes, self.projection)
            sums.index_add_(0, memory.y, self.project(memory.x, ctx.model))
        return self.project(x, ctx.model, params) @ F.normalize(sums, dim=1).T / self.temperature
