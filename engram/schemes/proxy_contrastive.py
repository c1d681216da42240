"""Proxy-based contrastive replay, PCR (Lin et al., 2023).

L = mean over images i of  −log( e^{s(i, y_i)/T} / Σ_j e^{s(i, y_j)/T} )

s(i, c) is the cosine between the features of image i and the proxy of class c, and j runs over all images of the step.
So a class is pushed away only while the step shows it, and more so if the step shows more of it.
"""

from __future__ import annotations

from typing import Literal

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
    """Contrasts images with the proxies of the classes in the step. No step is taken while the memory is empty.

    Args:
        replay: number of memory images replayed in one step.
        temperature: temperature of the loss (T).
        learning_rate: learning rate of SGD on the net.
        views: "two" shows each image as it comes and in an augmented view, as published; "one" only as it comes, which
            is for methods that augment images before every step.
        passes: "separate" runs stream and replay in a forward pass each, as published; "joint" in one pass.
        augment: augmentation that makes the second view.
    """

    provides = frozenset({"logits", "replay"})

    def __init__(
        self,
        replay: Natural = 10,
        temperature: Positive = 0.09,
        learning_rate: NonNegative = 0.1,
        views: Literal["two", "one"] = "two",
        passes: Literal["separate", "joint"] = "separate",
        augment: ViewAugmentation = ViewAugmentation(jitter_kind="multiplicative"),
    ) -> None:
        super().__init__(learning_rate)
        self.replay, self.temperature = replay, temperature
        self.views, self.passes, self.augment = views, passes, augment

    def build(self, model: Model, rng: Randomness) -> torch.optim.Optimizer:
        model.add_head(LOGITS, lambda: CosineHead(model.feature_width, 0, self.temperature), rng["init"])
        return torch.optim.SGD(model.parameters(), lr=self.learning_rate)

    def replay_size(self, ctx: StepContext) -> int:
        return self.replay

    def loss(self, stream: Batch, replay: Batch | None, ctx: StepContext) -> Tensor | None:
        if replay is None:
            return None
        batches = [self._shown(batch, ctx) for batch in (stream, replay)]
        if self.passes == "joint":
            batches = [Batch.join(*batches)]
        logits = torch.cat([ctx.model.logits(batch.x) for batch in batches])
        return proxy_contrastive_loss(logits, torch.cat([batch.y for batch in batches]))

    def _shown(self, batch: Batch, ctx: StepContext) -> Batch:
        """Return the images as the net sees them."""
        if self.views == "one":
            return batch
        return Batch.join(batch, Batch(augment_view(batch.x, self.augment, ctx.rng["augment"]), batch.y))
