"""Nothing that is not a number is saved or restored: once in the weights, it would spread and never leave."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from engram.base.errors import NonFiniteStateError
from engram.persistence.state import Tree, tensors_of


def require_finite(tree: Tree, name: str, *, infinite: bool = False) -> None:
    """Raise a `NonFiniteStateError` if a tensor of a tree holds a value that is not finite.

    Args:
        tree: state of plain values and tensors.
        name: what to call it in messages.
        infinite: allow infinities, where they mean something; NaN is never allowed.
    """
    for tensor in tensors_of(tree):
        if not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        if torch.isfinite(tensor.sum()):  # fast, and never true if a value is not finite
            continue
        if tensor.isnan().any() if infinite else not torch.isfinite(tensor).all():
            raise NonFiniteStateError(
                f"{name} holds values that are not finite: go on from an earlier save, with a lower learning rate"
            )


def require_finite_module(module: nn.Module, name: str) -> None:
    """Raise a `NonFiniteStateError` if a module has parameters, or statistics of norms, that are not finite.

    Other buffers may hold infinities, such as masks of attention.
    """
    require_finite([parameter.detach() for parameter in module.parameters()], f"{name} (weights)")
    for layer in module.modules():
        own: list[Tensor] = [buffer for _, buffer in layer.named_buffers(recurse=False)]
        require_finite(own, f"{name} ({type(layer).__name__})", infinite=not isinstance(layer, _NormBase))
