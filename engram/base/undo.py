"""Undo: remember values as they are now, so that a batch is learned as a whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Undo = Callable[[], None]
"""Puts something back into the state that it had when it was remembered."""


def remember_value(value: Any) -> Callable[[], Any]:
    """Return a function that returns the value as it is now.

    Modules, optimizers and generators are put back in place and keep their identity. Tensors and containers are copied.
    """
    if isinstance(value, nn.Module):
        return _then(remember_module(value), value)
    if isinstance(value, torch.optim.Optimizer):
        return _then(_remember_optimizer(value), value)
    if isinstance(value, torch.Generator):
        state = value.get_state()
        return _then(lambda: value.set_state(state), value)
    copied = copy_tree(value)
    return lambda: copied


def remember_module(module: nn.Module) -> Undo:
    """Return a function that gives parameters and buffers their present values and shapes, without gradients."""
    tensors = module.state_dict(keep_vars=True)
    copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}

    def undo() -> None:
        for name, tensor in module.state_dict(keep_vars=True).items():
            tensor.data, tensor.grad = copies[name], None

    return undo


def copy_tree(tree: Any) -> Any:
    """Return a copy of dicts and lists in which every tensor is a copy too."""
    if isinstance(tree, Tensor):
        return tree.clone()
    if isinstance(tree, dict):
        return {key: copy_tree(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [copy_tree(value) for value in tree]
    return tree


def _remember_optimizer(optimizer: torch.optim.Optimizer) -> Undo:
    copies = {parameter: copy_tree(dict(state)) for parameter, state in optimizer.state.items()}

    def undo() -> None:
        optimizer.state.clear()
        optimizer.state.update(copies)

    return undo


def _then(undo: Callable[[], Any], value: Any) -> Callable[[], Any]:
    def run() -> Any:
        undo()
        return value

    return run
