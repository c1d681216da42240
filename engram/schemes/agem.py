"""A-GEM: if the stream's gradient g points against that of a replay batch g_ref, its part along g_ref is removed.

g ← g − (g·g_ref / ‖g_ref‖²) g_ref   if g·g_ref < 0   (Chaudhry et al., 2019)
"""

from __future__ import annotations

import torch
from torch import Tensor

from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.settings import Count, NonNegative
from engram.schemes.labelled import LabelScheme, label_loss


def project_gradient(gradient: Tensor, reference: Tensor) -> Tensor:
    """Return the nearest gradient that does not point against the reference."""
    agreement = gradient @ reference
    if agreement >= 0:
        return gradient
    return gradient - (agreement / (reference @ reference)) * reference


class AveragedGradientEpisodicMemory(LabelScheme):
    """Trains on the stream. From the first boundary on, a step must not point against the gradient of a replay batch.

    Args:
        replay: number of memory images the reference gradient is taken on.
        learning_rate: learning rate of SGD on the net.
    """

    provides = frozenset({"logits", "replay"})

    def __init__(self, replay: Count = 10, learning_rate: NonNegative = 0.1) -> None:
        super().__init__(learning_rate)
        self.replay = replay
        self.add_state("boundaries", 0)
        self.boundaries: int

    def on_boundary(self, ctx: StepContext) -> None:
        self.boundaries += 1

    def loss(self, stream: Batch, replay: Batch | None, ctx: StepContext) -> Tensor:
        return label_loss(stream, ctx)

    def adjust_gradients(self, stream: Batch, ctx: StepContext) -> None:
        if not self.boundaries or not ctx.memory.size:
            return
        replay = ctx.memory.read(ctx.retrieval.select(stream, self.replay, ctx))
        parameters = [parameter for parameter in ctx.model.parameters() if parameter.requires_grad]
        reference = torch.autograd.grad(label_loss(replay, ctx), parameters, materialize_grads=True)
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
        projected = project_gradient(_flat(gradients), _flat(reference))
        for parameter, own in zip(parameters, projected.split([p.numel() for p in parameters]), strict=True):
            parameter.grad = own.view_as(parameter).clone(memory_format=torch.preserve_format)


def _flat(tensors: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
