"""State as a tree of plain values, and the tree as tensors plus JSON.

A tree is built of dicts (keys are strings or integers), lists, tensors and JSON scalars. `flatten` pulls the tensors
out under path-like names and leaves a JSON skeleton; `unflatten` puts them back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from engram.base.errors import InputError
from engram.base.heads import GrowingHead

Tree = Any

MOST_NODES = 3_000_000
"""Most values in a tree; a list that occurs in several places counts in each."""
DEEPEST = 100
"""Most containers around a value."""
LARGEST_NUMBER = 10_000
"""Most bits of an integer. Python reads no longer ones from text."""
MOST_STATE_OF_PARAMETER = 8
"""Most values that an optimizer keeps for a parameter."""

_TENSOR, _INT_KEYS, _ITEMS = "$tensor", "$int_keys", "$items"
"""Keys that mark what JSON does not have: a tensor, a dict of integers, and a dict of any other keys."""


def flatten(tree: Tree) -> tuple[dict[str, Tensor], Any]:
    """Split a tree into its tensors by name and a JSON-able skeleton that names them.

    What could not be restored as it is raises an `InputError` that says where it is.
    """
    tensors: dict[str, Tensor] = {}
    nodes = 0

    def walk(node: Tree, path: str, depth: int) -> Any:
        nonlocal nodes
        simple = isinstance(node, list | tuple) and _is_simple(node)
        nodes += 1 + (len(node) if simple else 0)
        if nodes > MOST_NODES or depth > DEEPEST:
            raise InputError(
                f"{path}: a saved state has at most {MOST_NODES:,} values and {DEEPEST} levels: "
                "give long lists of numbers as a tensor"
            )
        if simple:
            return list(node)
        if isinstance(node, Tensor):
            return {_TENSOR: _add_tensor(tensors, path, node)}
        if isinstance(node, Mapping):
            pairs = [
                (_plain_key(key, path), walk(value, _path_below(path, key), depth + 1)) for key, value in node.items()
            ]
            if all(isinstance(key, str) and not key.startswith("$") for key, _ in pairs):
                return dict(pairs)
            return {_INT_KEYS if all(isinstance(key, int) for key, _ in pairs) else _ITEMS: list(map(list, pairs))}
        if isinstance(node, list | tuple):
            return [walk(value, _path_below(path, index), depth + 1) for index, value in enumerate(node)]
        return _plain_scalar(node, path)

    return tensors, walk(tree, "", 0)


def _is_simple(values: list[Any] | tuple[Any, ...]) -> bool:
    """Return whether a list holds plain values of one kind, none of them too large, so that it is saved as it is."""
    kinds = set(map(type, values))
    return kinds in ({float}, {str}, {bool}) or (kinds == {int} and max(map(abs, values)) < 1 << LARGEST_NUMBER)


def _path_below(path: str, key: int | str) -> str:
    """Return the path of an entry; of a long one, its end."""
    return f"{path}.{str(key)[:100]}"[-200:]


def _add_tensor(tensors: dict[str, Tensor], path: str, tensor: Tensor) -> str:
    """Add a tensor under a name that is new and plain, and return the name."""
    if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
        raise InputError(f"{path}: a {tensor.layout} tensor of {tensor.dtype} on {tensor.device} cannot be saved")
    name = re.sub(r"[^\w.$-]", "_", path, flags=re.ASCII)
    while name in tensors:
        name += "'"
    tensors[name] = tensor
    return name


def _plain_key(key: Any, path: str) -> int | str:
    if isinstance(key, bool) or not isinstance(key, int | str):
        raise InputError(f"{path}: the key {key!r} is {type(key).__name__}: give strings or integers")
    plain: int | str = _plain_scalar(key, path)
    return plain


def _plain_scalar(node: Any, path: str) -> Any:
    """Return a scalar as a plain Python value, or raise an `InputError`."""
    if node is None or isinstance(node, bool):
        return node
    if isinstance(node, int):
        if node.bit_length() > LARGEST_NUMBER:
            raise InputError(f"{path}: an integer of {node.bit_length():,} bits cannot be saved: give a string")
        return int(node)
    if isinstance(node, float):
        return float(node)
    if isinstance(node, str):
        return str.__str__(node)
    raise InputError(f"{path}: {type(node).__name__} cannot be part of a saved state: give numbers, strings or tensors")


def unflatten(tensors: Mapping[str, Tensor], skeleton: Any) -> Tree:
    """Put the tensors back into a skeleton: the inverse of `flatten`, but tuples come back as lists."""
    if isinstance(skeleton, list):
        return [unflatten(tensors, value) for value in skeleton]
    if not isinstance(skeleton, dict):
        return skeleton
    marks = skeleton.keys() & {_TENSOR, _INT_KEYS, _ITEMS}
    if not marks:
        return {key: unflatten(tensors, value) for key, value in skeleton.items()}
    if len(skeleton) > 1:
        raise ValueError(f"{sorted(skeleton)[:3]} stand beside each other: this was not written by engram")
    if _TENSOR in marks:
        return tensors[skeleton[_TENSOR]]
    if _INT_KEYS in marks:
        return {int(key): unflatten(tensors, value) for key, value in skeleton[_INT_KEYS]}
    return {key: unflatten(tensors, value) for key, value in skeleton[_ITEMS]}


def same_tree(saved: Tree, read: Tree) -> bool:
    """Return whether a tree that was read is the one that was saved, to the last bit; tuples count as lists."""
    if isinstance(saved, Tensor):
        return isinstance(read, Tensor) and _same_tensor(saved, read)
    if isinstance(saved, Mapping):
        same_keys = isinstance(read, Mapping) and list(saved) == list(read)
        return same_keys and all(same_tree(value, read[key]) for key, value in saved.items())
    if isinstance(saved, list | tuple):
        return isinstance(read, list) and len(saved) == len(read) and all(map(same_tree, saved, read))
    if isinstance(saved, float):
        return isinstance(read, float) and float(saved).hex() == read.hex()
    return bool(saved == read) and isinstance(saved, type(read)) and isinstance(saved, bool) == isinstance(read, bool)


def _same_tensor(saved: Tensor, read: Tensor) -> bool:
    if (saved.dtype, saved.shape) != (read.dtype, read.shape):
        return False
    plain = [each.detach().resolve_conj().resolve_neg().cpu().contiguous() for each in (saved, read)]
    first, second = (each.view(-1).view(torch.uint8) for each in plain)
    if all(each.numel() % 8 == 0 and each.storage_offset() % 8 == 0 for each in (first, second)):
        first, second = first.view(torch.int64), second.view(torch.int64)  # eight times as fast
    return torch.equal(first, second)


def tree_bytes(tree: Tree) -> int:
    """Return the bytes that a tree holds: those of its tensors, and eight for each number."""
    if isinstance(tree, Tensor):
        return tree.nbytes
    if isinstance(tree, Mapping):
        return sum(tree_bytes(value) for value in tree.values())
    if isinstance(tree, list | tuple):
        return sum(tree_bytes(value) for value in tree)
    if isinstance(tree, str):
        return len(tree.encode(errors="surrogatepass"))
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
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors_of(tree)}.values())


def tensors_of(tree: Tree) -> Iterator[Tensor]:
    """Yield every tensor of a tree, in no particular order."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Tensor):
            yield node
        elif isinstance(node, Mapping):
            waiting.extend(node.values())
        elif isinstance(node, list | tuple):
            waiting.extend(node)


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
        if len(entry) > MOST_STATE_OF_PARAMETER:
            raise ValueError(f"the optimizer has {len(entry)} values for parameter {index}")
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
