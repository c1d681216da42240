"""GDumb trains a new net on the memory when it is asked for an answer (Prabhu et al., 2020).

The learning rate of the first epoch is a tenth of r_max. From epoch e = 2 on it falls along cosines that start anew at
e = 2, 4, 8, 16, …:  r = r_min + (r_max − r_min)(1 + cos π(e − s)/s) / 2,  s the latest of these.
"""

from __future__ import annotations

import copy
import dataclasses
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.divergence import has_diverged
from engram.base.errors import NonFiniteLossError, NotReadyError
from engram.base.heads import GrowingHead
from engram.base.model import Model
from engram.base.rng import Randomness
from engram.base.settings import Count, Decay, Natural, NonNegative, Positive, Share
from engram.classifiers.mixing import cut_and_mix, draw_box, shift_and_flip
from engram.classifiers.softmax import Softmax


def rate_of_epoch(epoch: int, highest: float, lowest: float) -> float:
    """Return the learning rate of an epoch, counted from 0."""
    if epoch < 2:
        return highest * (0.1 if epoch == 0 else 1)
    start = 1 << (epoch.bit_length() - 1)
    return lowest + (highest - lowest) * (1 + math.cos(math.pi * (epoch - start) / start)) / 2


class FromScratch(Softmax):
    """Trains a copy of the net on the memory, and answers by its softmax.

    The copy is kept until the memory changes. It depends on the memory, the net's first weights and the learner's seed
    alone, and it is no state: it is not saved, and a learner that is loaded makes the same one again.

    Args:
        epochs: number of passes over the memory (256 as published). A power of two ends with the lowest learning rate.
        batch: number of images in a training step.
        learning_rate: highest learning rate (r_max).
        lowest_learning_rate: lowest learning rate (r_min).
        momentum: momentum of SGD.
        weight_decay: weight decay of SGD.
        cutmix: probability that a batch is mixed: a box of each image is taken from another one of the batch.
        shift: largest number of pixels an image is moved by, in both directions.
        flip: probability that an image is mirrored.
        clip: largest norm of the gradient.
    """

    needs = frozenset({"logits", "first weights"})
    provides = frozenset({"replay"})

    def __init__(
        self,
        epochs: Count = 64,
        batch: Count = 16,
        learning_rate: NonNegative = 0.05,
        lowest_learning_rate: NonNegative = 0.0005,
        momentum: Decay = 0.9,
        weight_decay: NonNegative = 1e-6,
        cutmix: Share = 0.5,
        shift: Natural = 4,
        flip: Share = 0.5,
        clip: Positive = 10.0,
    ) -> None:
        self.epochs, self.batch = epochs, batch
        self.learning_rate, self.lowest_learning_rate = learning_rate, lowest_learning_rate
        self.momentum, self.weight_decay, self.clip = momentum, weight_decay, clip
        self.cutmix, self.shift, self.flip = cutmix, shift, flip
        self._kept: tuple[tuple[Model, int, int, int], Model] | None = None

    def scores(self, x: Tensor, ctx: StepContext) -> Tensor:
        return super().scores(x, dataclasses.replace(ctx, model=self.answering_model(ctx)))

    def head(self, ctx: StepContext) -> GrowingHead:
        return super().head(dataclasses.replace(ctx, model=self.answering_model(ctx)))

    def answering_model(self, ctx: StepContext) -> Model:
        key = (ctx.model, ctx.model.version, ctx.memory.version, ctx.classes)
        if self._kept is None or self._kept[0] != key:
            with torch.inference_mode(False), torch.enable_grad():
                self._kept = key, self._trained(ctx)
        return self._kept[1]

    def _trained(self, ctx: StepContext) -> Model:
        """Return a copy of the net that has learned the memory."""
        memory, model = ctx.memory, copy.deepcopy(ctx.model)
        if not memory.size:
            raise NotReadyError("the memory holds no image to train on: give the memory more bytes")
        generator = Randomness(ctx.rng.seed)["answers"]
        optimizer = torch.optim.SGD(
            model.parameters(), lr=self.learning_rate, momentum=self.momentum, weight_decay=self.weight_decay
        )
        model.net.train()
        for epoch in range(self.epochs):
            for group in optimizer.param_groups:
                group["lr"] = rate_of_epoch(epoch, self.learning_rate, self.lowest_learning_rate)
            for slots in torch.randperm(memory.size, generator=generator).split(self.batch):
                optimizer.zero_grad()
                self._loss(memory.read(slots), model, generator).backward()
                nn.utils.clip_grad_norm_(model.parameters(), self.clip)
                optimizer.step()
        if has_diverged(model.net):
            raise NonFiniteLossError("the net that learns the memory diverged: lower classifier.learning_rate")
        return model

    def _loss(self, batch: Batch, model: Model, generator: torch.Generator) -> Tensor:
        x = shift_and_flip(batch.x, self.shift, self.flip, generator)
        if float(torch.rand((), generator=generator)) >= self.cutmix:
            return F.cross_entropy(model.logits(x), batch.y)
        partners = torch.randperm(len(batch), generator=generator).to(x.device)
        x, own = cut_and_mix(x, x[partners], draw_box(x.shape[2], x.shape[3], generator))
        logits = model.logits(x)
        return own * F.cross_entropy(logits, batch.y) + (1 - own) * F.cross_entropy(logits, batch.y[partners])
