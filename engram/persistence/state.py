"""State as a tree of plain values, and the tree as tensors plus JSON.

A tree is built of dicts (keys all str or all int), lists, tensors and JSON scalars. `flatten` pulls the tensors out
under path-like names and leaves a JSON skeleton; `unflatten` puts them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from engram.base.heads import GrowingHead

Tree = Any

_TENSOR, _INT_KEYS = "$tensor", "$int_keys"


def flatten(tree: Tree, prefix: str = "") -> tuple[dict[str, Tensor], Any]:
    """Split `tree` into its tensors by path and a JSON-able skeleton that names them."""
    tensors: dict[str, Tensor] = {}

    def walk(node: Tree, path: str) -> Any:
        if isinstance(node, Tensor):
            tensors[path] = node
            return {_TENSOR: path}
        if isinstance(node, Mapping):
            if node and all(isinstance(key, int) for key in node):
                return {_INT_KEYS: [[key, walk(value, f"{path}.{key}")] for key, value in node.items()]}
            return {str(key): walk(value, f"{path}.{key}") for key, value in node.items()}
        if isinstance(node, list | tuple):
            return [walk(value, f"{path}.{index}") for index, value in enumerate(node)]
        if node is None or isinstance(node, bool | int | float | str):
            return node
        raise TypeError(f"{path}: {type(node).__name__} cannot be part of a saved state")

    return tensors, walk(tree, prefix)


def unflatten(tensors: Mapping[str, Tensor], skeleton: Any) -> Tree:
    """Put the tensors back into a skeleton: the inverse of `flatten`, but tuples come back as lists."""
    if isinstance(skeleton, list):
        return [unflatten(tensors, value) for value in skeleton]
    if isinstance(skeleton, dict):
        if _TENSOR in skeleton:
            return tensors[skeleton[_TENSOR]]
        if _INT_KEYS in skeleton:
            return {int(key): unflatten(tensors, value) for key, value in skeleton[_INT_KEYS]}
        return {key: unflatten(tensors, value) for key, value in skeleton.items()}
    return skeleton


def tree_bytes(tree: Tree) -> int:
    """Return the bytes that a tree holds: those of its tensors, and eight for each number."""
    if isinstance(tree, Tensor):
        return tree.nbytes
    if isinstance(tree, Mapping):
        return sum(tree_bytes(value) for value in tree.values())
    if isinstance(tree, list | tuple):
        return sum(tree_bytes(value) for value in tree)
    if isinstance(tree, str):
        return len(tree.encode())
    return 0 if tree is None else 8


def tree_to(tree: Tree, device: torch.device) -> Tree:
    """Return the tree with every tensor on the device; containers without tensors are returned as they are."""
    if isinstance(tree, Tensor):
        return tree.to(device)
    if isinstance(tree, dict):
        moved = {key: tree_to(value, device) for key, value in tree.items()}
        return tree if all(moved[key] is value for key, value in tree.items()) else moved
    if isinstance(tree, list):
        items = [tree_to(value, device) for value in tree]
        return tree if all(new is old for new, old in zip(items, tree, strict=True)) else items
    return tree


def unique_bytes(tree: Tree) -> int:
    """Return the bytes of the tensors of a tree; a tensor that occurs several times counts once."""
    tensors = {tensor.data_ptr(): tensor.nbytes for tensor in flatten(tree)[0].values()}
    return sum(tensors.values())


def module_state(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a module by name, without gradients."""
    return {name: tensor.detach() for name, tensor in module.state_dict().items()}


@torch.no_grad()
def restore_module(module: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Load tensors in place. A parameter of a growing head takes the saved shape and keeps its identity."""
    current: dict[str, Tensor] = module.state_dict(keep_vars=True)
    if current.keys() != saved.keys():
        raise ValueError(f"saved state does not fit: differing entries {sorted(current.keys() ^ saved.keys())[:5]}")
    growing = {
        f"{prefix}.{name}"
        for prefix, part in module.named_modules()
        if isinstance(part, GrowingHead)
        for name, _ in part.named_parameters()
    }
    for name, tensor in saved.items():
        own = current[name]
        if (own.dtype, own.ndim) != (tensor.dtype, tensor.ndim) or (own.shape != tensor.shape and name not in growing):
            raise ValueError(
                f"{name} is {tensor.dtype} {tuple(tensor.shape)}, not {own.dtype} {tuple(own.shape)}: it does not fit"
            )
    for name, tensor in saved.items():
        if current[name].shape == tensor.shape:
            current[name].copy_(tensor)
        else:
            current[name].data = tensor.clone().to(current[name].device)


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[int, Tree]:
    """Return the state of each parameter by its position; hyper-parameters are saved with the settings."""
    return {int(index): dict(state) for index, state in optimizer.state_dict()["state"].items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, saved: Mapping[int, Tree]) -> None:
    """Load the state of an optimizer. Restore its parameters first: their shapes decide what fits."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, entry in saved.items():
        for name, value in entry.items():
            shape = torch.Size() if name == "step" else parameters[index].shape
            if value is not None and (value.dtype != torch.float32 or value.shape != shape):
                raise ValueError(f"the optimizer's {name} of parameter {index} does not fit it")
    state = optimizer.state_dict()
    optimizer.load_state_dict({"state": dict(saved), "param_groups": state["param_groups"]})
    for parameter, entry in optimizer.state.items():
        for name, value in entry.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                entry[name] = torch.empty_like(parameter, requires_grad=False).copy_(value)


def pad_optimizer_state(optimizer: torch.optim.Optimizer) -> None:
    """Add zero state for rows that parameters gained along their first dimension."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.ndim == parameter.ndim > 0 and len(value) < len(parameter):
                rows = value.new_zeros(len(parameter) - len(value), *value.shape[1:])
                state[name] = torch.cat([value, rows])
