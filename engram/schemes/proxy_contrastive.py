"""Proxy-based contrastive replay, PCR (Lin et al., 2023).

L = mean over images i of  −log( e^{s(i, y_i)/T} / Σ_j e^{s(i, y_j)/T} )

s(i, c) is the cosine between the features of image i and the proxy of class c, and j runs over all images of the step.
So a class is pushed away only while the step shows it, and more so if the step shows more of it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.augmentations.view import ViewAugmentation, augment_view
from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.heads import CosineHead
from engram.base.model import LOGITS, Model
from engram.base.rng import Randomness
from engram.base.settings import Natural, NonNegative, Positive
from engram.schemes.labelled import LabelScheme


def proxy_contrastive_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the loss above, from the cosines over the temperature (N,C) and the labels (N,)."""
    return F.nll_loss(logits - logits[:, labels].logsumexp(1, keepdim=True), labels)


class ProxyContrastiveReplay(LabelScheme):
    """Contrasts images with the proxies of the classes in the step. Each image is there twice: as it is and augmented.

    Stream and replay images take a forward pass each. No step is taken while the memory is empty.

    Args:
        replay: number of memory images replayed in one step.
        temperature: temperature of the loss (T).
        learning_rate: learning rate of SGD on the net.
        augment: augmentation that makes the second view.
    """

    provides = frozenset({"logits", "replay"})

    def __init__(
        self,
        replay: Natural = 10,
        temperature: Positive = 0.09,
        learning_rate: NonNegative = 0.1,
        augment: ViewAugmentation = ViewAugmentation(jitter_kind="multiplicative"),
    ) -> None:
        super().__init__(learning_rate)
        self.replay, self.temperature, self.augment = replay, temperature, augment

    def build(self, model: Model, rng: Randomness) -> torch.optim.Optimizer:
        model.add_head(LOGITS, lambda: CosineHead(model.feature_width, 0, self.temperature), rng["init"])
        return torch.optim.SGD(model.parameters(), lr=self.learning_rate)

    def replay_size(self, ctx: StepContext) -> int:
        return self.replay

    def loss(self, stream: Batch, replay: Batch | None, ctx: StepContext) -> Tensor | None:
        if replay is None:
            return None
        logits = [ctx.model.logits(self._both_views(batch.x, ctx)) for batch in (stream, replay)]
        labels = torch.cat([stream.y, stream.y, replay.y, replay.y])
        return proxy_contrastive_loss(torch.cat(logits), labels)

    def _both_views(self, x: Tensor, ctx: StepContext) -> Tensor:
        return torch.cat([x, augment_view(x, self.augment, ctx.rng["augment"])])
