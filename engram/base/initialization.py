"""PyTorch's default initialization, drawn from a given generator instead of the global one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

M = TypeVar("M", bound=nn.Module)


NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


@torch.no_grad()
def initialize(module: nn.Module, generator: torch.Generator) -> None:
    """Reset every layer of a module in place.

    Weights and biases become uniform in ±1/√fan-in, norms become the identity. Other layers reset themselves; a layer
    that cannot is left as it is.
    """
    for layer in module.modules():
        weight, bias = getattr(layer, "weight", None), getattr(layer, "bias", None)
        if isinstance(layer, NORMS):
            layer.reset_parameters()
        elif isinstance(weight, Tensor) and weight.ndim >= 2:
            bound = 1 / math.sqrt(math.prod(weight.shape[1:]))
            for tensor in (weight, bias):
                if isinstance(tensor, Tensor):
                    tensor.copy_(torch.empty(tensor.shape).uniform_(-bound, bound, generator=generator))
        elif callable(reset := getattr(layer, "reset_parameters", None)):
            with torch.random.fork_rng():
                torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
                reset()


_room: ContextVar[list[int] | None] = ContextVar("_room", default=None)


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """While inside, raise a ValueError before modules of more than `size` bytes in all are made or grown."""
    token = _room.set([size])
    try:
        yield
    finally:
        _room.reset(token)


def require_room(size: int) -> None:
    """Count bytes that a module is about to allocate; inside `at_most`, raise a ValueError if they are too many."""
    if room := _room.get():
        room[0] -= size
        if room[0] < 0:
            raise ValueError("the settings ask for far larger nets")


def materialize(build: Callable[[], M], generator: torch.Generator, device: torch.device) -> M:
    """Build a module without touching the global generator, then initialize it from the given one."""
    with torch.device("meta"):
        module = build()
    require_room(sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers())))
    module = module.to_empty(device=device)
    initialize(module, generator)
    return module
