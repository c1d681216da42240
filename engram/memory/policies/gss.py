"""Gradient-based sample selection, greedy: a memory of images whose gradients point apart   (Aljundi et al., 2019).

score(x) = the largest cosine between x's own gradient and those of a few batches of memory
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.gradients import label_gradient
from engram.base.interfaces import Policy, StoreReport
from engram.base.settings import Count, Range


def replacement_probability(victim: Tensor, newcomer: Tensor) -> Tensor:
    """Return b/(a+b) with b = (victim's score + 1)/2 and a = (newcomer's score + 1)/2; ½ if both are 0."""
    b, a = (victim + 1) / 2, (newcomer + 1) / 2
    return torch.where(a + b > 0, b / (a + b).clamp_min(1e-12), 0.5)


def victim_weights(scores: Tensor) -> Tensor:
    """Return weights in proportion to which slots are challenged."""
    return (scores - scores.min()) / (scores.max() - scores.min() + 0.01)


class GradientSelection(Policy):
    """Fills free slots, then lets dissimilar images replace similar ones. Stored scores are never refreshed.

    Args:
        batch: number of memory images in one reference gradient.
        references: largest number of reference gradients.
        first_score: score of the images of the very first batch, for which there is nothing to compare with.
    """

    needs = frozenset({"replay"})

    def __init__(
        self, batch: Count = 10, references: Count = 10, first_score: Annotated[float, Range(least=-1, most=1)] = 0.1
    ) -> None:
        self.batch, self.references, self.first_score = batch, references, first_score

    def store(self, stream: Batch, ctx: StepContext) -> StoreReport:
        memory, report = ctx.memory, StoreReport()
        before = memory.stored
        fitting = stream[torch.arange(min(memory.free, len(stream)))]
        if len(fitting):
            scores = self._scores(fitting, ctx) if memory.size else [self.first_score] * len(fitting)
            for position, score in enumerate(scores):
                self._put(memory.size, fitting, position, score, ctx)
        else:
            self._replace(stream, ctx)
        report.stored = memory.stored_since(before)
        memory.seen += len(stream)
        return report

    def _put(self, slot: int, batch: Batch, position: int, score: float, ctx: StepContext) -> None:
        stored = ctx.memory.put(slot, batch, position, ctx.memory.limit.draw_priority(ctx.rng["memory"]))
        if stored is not None:
            ctx.memory.score[stored] = score

    def _replace(self, stream: Batch, ctx: StepContext) -> None:
        memory, generator = ctx.memory, ctx.rng["memory"]
        references = self._reference_gradients(ctx)
        if float(_largest_cosine(label_gradient(stream, ctx), references)) >= 0:
            return
        new = torch.tensor(
            [float(_largest_cosine(label_gradient(image, ctx), references)) for image in _singly(stream)]
        )
        old = memory.score[: memory.size].clone()
        victims = draw_without_replacement(victim_weights(old), min(len(stream), memory.size), generator)
        new = new[: len(victims)]
        chances = replacement_probability(old[victims], new)
        replaced = torch.rand(len(victims), generator=generator) < chances
        challenged = memory.ids[victims].tolist()
        for position in replaced.nonzero().flatten().tolist():
            if challenged[position] in memory.ids:
                slot = memory.slot_of(challenged[position])
                self._put(slot, stream, position, float(new[position]), ctx)

    def _scores(self, batch: Batch, ctx: StepContext) -> list[float]:
        references = self._reference_gradients(ctx)
        return [float(_largest_cosine(label_gradient(image, ctx), references)) for image in _singly(batch)]

    def _reference_gradients(self, ctx: StepContext) -> Tensor:
        memory = ctx.memory
        size = min(self.batch, memory.size)
        slots = torch.randperm(memory.size, generator=ctx.rng["memory"])
        batches = slots[: memory.size // size * size].split(size)[: self.references]
        return torch.stack([label_gradient(memory.read(chosen), ctx) for chosen in batches])


def draw_without_replacement(weights: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw `count` distinct indices in proportion to `weights`; if too few are positive, the rest uniformly."""
    drawn = torch.zeros(0, dtype=torch.long)
    positive = int((weights > 0).sum())
    if positive:
        drawn = torch.multinomial(weights, min(count, positive), generator=generator)
    if len(drawn) < count:
        others = torch.arange(len(weights))[~torch.isin(torch.arange(len(weights)), drawn)]
        more = others[torch.randperm(len(others), generator=generator)[: count - len(drawn)]]
        drawn = torch.cat([drawn, more])
    return drawn


def _largest_cosine(gradient: Tensor, references: Tensor) -> Tensor:
    """Return the largest cosine with a reference; that of a zero gradient is 0."""
    return F.cosine_similarity(gradient[None], references, eps=1e-12).max()


def _singly(batch: Batch) -> list[Batch]:
    return [batch[torch.tensor([position])] for position in range(len(batch))]
