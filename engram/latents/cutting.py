"""Cut a module in two behind a layer: what comes before is frozen, what comes after learns.

The module's forward pass is followed symbolically (torch.fx), only as deep as the layer lies: the modules beside it are
taken as they are. So a layer of an `nn.Sequential` can always be cut behind, whatever the other modules do inside.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from torch import Tensor, fx, nn

from engram.base.errors import InputError
from engram.base.naming import suggest

ALL, UNTIL = "all", "until:"
SHOWN_LAYERS = 12
"""Most layers that a message names."""


def require_cut(module: nn.Module, freeze: Any) -> None:
    """Raise an `InputError` if a module cannot be frozen in this way."""
    if freeze == ALL:
        return
    if not isinstance(freeze, str) or not freeze.startswith(UNTIL):
        raise InputError(f"freeze is {freeze!r}: need 'all', or 'until:NAME' with the name of a layer of the net")
    name, layers = freeze.removeprefix(UNTIL), [name for name, _ in module.named_modules() if name]
    if name not in layers:
        top = [layer for layer in layers if "." not in layer][:SHOWN_LAYERS]
        raise InputError(
            f"freeze is {freeze!r}, but {type(module).__name__} has no layer {name!r}{suggest(name, layers)}; "
            f"its layers begin with {', '.join(top) or 'none'}"
        )
    cut(module, freeze)


def cut(module: nn.Module, freeze: str) -> tuple[nn.Module, nn.Module]:
    """Return the frozen front of a module and the part above it. They share the module's layers.

    Args:
        module: the module, whose only input is the images.
        freeze: "all", or "until:NAME" to freeze everything up to the layer of that name, and the layer.
    """
    if freeze == ALL:
        return module, nn.Identity()
    name = freeze.removeprefix(UNTIL)
    front, above = _front(module, name), _above(module, name)
    shared = {id(tensor) for tensor in tensors(front)} & {id(tensor) for tensor in tensors(above)}
    if shared:
        raise InputError(
            f"{type(module).__name__} uses the same weights below and above {name!r}, so they would be frozen and "
            "learn: freeze until another layer"
        )
    return front, above


def tensors(module: nn.Module) -> Iterator[Tensor]:
    """Yield the parameters and buffers of a module."""
    yield from module.parameters()
    yield from module.buffers()


class _Tracer(fx.Tracer):
    """Follows the forward passes of the modules that hold a layer, and no others.

    Args:
        layer: name of the layer.
    """

    def __init__(self, layer: str) -> None:
        super().__init__()
        self.layer = layer

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return not self.layer.startswith(module_qualified_name + ".")


def _traced(module: nn.Module, name: str) -> tuple[fx.Graph, fx.Node]:
    """Return the graph of a module, and the only call of a layer in it."""
    kind = type(module).__name__
    try:
        graph = _Tracer(name).trace(module, concrete_args=_defaults(module))
    except Exception as error:  # following a module's own code may fail in any way
        raise InputError(
            f"the forward pass of {kind} cannot be followed to {name!r} ({error}): give "
            "net=nn.Sequential(front, rest) and freeze='until:0'"
        ) from error
    calls = [node for node in graph.nodes if node.op == "call_module" and node.target == name]
    if len(calls) != 1:
        raise InputError(f"{kind} calls {name!r} {len(calls)} times: freeze until a layer that it calls once")
    return graph, calls[0]


def _defaults(module: nn.Module) -> dict[str, Any]:
    """Return the arguments of a module that have a default; they keep it, as the module is given images alone."""
    parameters = inspect.signature(module.forward).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty}


def _front(module: nn.Module, name: str) -> nn.Module:
    """Return what computes the output of a layer. Everything that runs before it is kept, as it may act in place."""
    graph, layer = _traced(module, name)
    nodes = list(graph.nodes)
    (output,) = (node for node in nodes if node.op == "output")
    output.args = (layer,)
    for node in reversed(nodes[nodes.index(layer) + 1 :]):
        if node is not output:
            graph.erase_node(node)
    return fx.GraphModule(module, graph)


def _above(module: nn.Module, name: str) -> nn.Module:
    """Return what computes the module's output from the output of a layer."""
    graph, layer = _traced(module, name)
    nodes = list(graph.nodes)
    with graph.inserting_before(nodes[0]):
        latents = graph.placeholder("latents")
    layer.replace_all_uses_with(latents)
    for node in reversed(nodes[: nodes.index(layer) + 1]):
        if not node.users:
            graph.erase_node(node)
    inputs = [node.name for node in graph.nodes if node.op == "placeholder" and node is not latents]
    if inputs:
        raise InputError(
            f"{type(module).__name__} uses {', '.join(inputs)} again above {name!r}, so it cannot be cut there: freeze "
            "until a layer that everything passes through"
        )
    return fx.GraphModule(module, graph)
