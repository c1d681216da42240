"""Whether a net still computes with useful numbers."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from engram.base.errors import NonFiniteLossError

LOWER_RATE = "the batch was not learned; lower scheme.learning_rate"


def require_finite_loss(loss: Tensor, batch: int) -> None:
    """Raise a `NonFiniteLossError` if the loss of a batch, given by its number, is infinite or NaN."""
    value = float(loss.detach())
    if not math.isfinite(value):
        raise NonFiniteLossError(f"the loss became {value} at batch {batch}: {LOWER_RATE}")


def require_bounded(module: nn.Module, batch: int) -> None:
    """Raise a `NonFiniteLossError` if a net has diverged at the batch of this number."""
    if has_diverged(module):
        raise NonFiniteLossError(f"the net's numbers grew without bound at batch {batch}: {LOWER_RATE}")


@torch.no_grad()
def has_diverged(module: nn.Module) -> bool:
    """Return whether a parameter, or a running statistic of a norm, is infinite, NaN or so large that its square is.

    Squares are what makes this cheap: the norms of all tensors are taken in one call.
    """
    tensors = [tensor for tensor in (*module.parameters(), *_statistics(module)) if tensor.numel()]
    norms = torch.stack([norm.float() for norm in torch._foreach_norm(tensors)])
    return not math.isfinite(float(norms.sum()))


def _statistics(module: nn.Module) -> list[Tensor]:
    norms = [part for part in module.modules() if isinstance(part, _NormBase)]
    found = [statistic for norm in norms for statistic in (norm.running_mean, norm.running_var)]
    return [statistic for statistic in found if statistic is not None]
