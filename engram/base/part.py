"""The base class of everything that has state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from engram.base.undo import Undo, remember_value
from engram.persistence.finite import require_finite, require_finite_module
from engram.persistence.state import (
    Tree,
    module_state,
    optimizer_state,
    restore_module,
    restore_optimizer,
    tree_bytes,
    tree_to,
)

if TYPE_CHECKING:
    from engram.base.context import StepContext

CPU = torch.device("cpu")
LARGEST_COUNT = 1 << 62
"""Bound of whole numbers in a restored state; torch cannot draw or index beyond it."""

FOOTPRINT = (
    "images",
    "labels",
    "originals",
    "queue",
    "working_copies",
    "net",
    "averaged",
    "theta",
    "optimizer",
    "snapshots",
    "bookkeeping",
)
"""The lines of `footprint()`."""


class Part:
    """Something with state. State is declared once; it is then saved, restored, moved and counted in bytes."""

    needs: frozenset[str] = frozenset()
    """Capabilities that some part of the method must provide; a composition without them is refused."""
    provides: frozenset[str] = frozenset()
    """Capabilities that this part provides."""
    published: Mapping[str, Any] = MappingProxyType({})
    """Settings for runs on the paper's streams, where other data is better served by the defaults."""
    recorded: Mapping[str, Any] = MappingProxyType({})
    """Settings for runs on every stream, so that they stay comparable with the results recorded before."""

    def add_state(
        self, name: str, value: Any, count_as: str = "bookkeeping", *, on_cpu: bool = False, infinite: bool = False
    ) -> None:
        """Declare the attribute `name` as state and set it.

        Args:
            name: name of the attribute, and of its entry in a saved state.
            value: a tensor, a JSON scalar, a dict or list of those, a module, an optimizer, a generator or a part.
            count_as: the line of `footprint()` that counts its bytes.
            on_cpu: keep tensors on the CPU; otherwise they live on the part's device.
            infinite: infinities have a meaning here; otherwise a state with them is neither saved nor restored.
        """
        self.__dict__.setdefault("_declared", {})[name] = count_as
        if infinite:
            self.__dict__.setdefault("_infinite", set()).add(name)
        if on_cpu:
            self.__dict__.setdefault("_on_cpu", set()).add(name)
        setattr(self, name, self._placed(name, value))

    @property
    def declared(self) -> dict[str, str]:
        """The declared attributes, each with the footprint line it is counted under."""
        found: dict[str, str] = self.__dict__.get("_declared", {})
        return found

    @property
    def device(self) -> torch.device:
        """The device that declared tensors live on."""
        placed: torch.device = self.__dict__.get("_device", CPU)
        return placed

    def to_device(self, device: torch.device) -> None:
        """Move all declared state to a device, and put there what is declared or restored later."""
        self.__dict__["_device"] = device
        for name in self.declared:
            setattr(self, name, self._placed(name, getattr(self, name)))

    def _placed(self, name: str, value: Any) -> Any:
        if isinstance(value, Part):
            value.to_device(self.device)
        elif not isinstance(value, nn.Module | torch.optim.Optimizer | torch.Generator):
            return tree_to(value, CPU if name in self.__dict__.get("_on_cpu", ()) else self.device)
        return value

    def state(self) -> Tree:
        """Return the declared state as a tree of dicts, lists, tensors and JSON scalars."""
        return {name: _state_of(getattr(self, name)) for name in self.declared}

    def load_state(self, tree: Tree) -> None:
        """Restore what `state` returned; a tree that does not fit raises a ValueError."""
        if tree.keys() != self.declared.keys():
            raise ValueError(f"{type(self).__name__} cannot load {sorted(tree)}: it keeps {sorted(self.declared)}")
        for name in self.declared:
            saved, current = tree[name], getattr(self, name)
            if isinstance(current, Part):
                current.load_state(saved)
            elif isinstance(current, nn.Module):
                restore_module(current, saved)
            elif isinstance(current, torch.optim.Optimizer):
                restore_optimizer(current, saved)
            elif isinstance(current, torch.Generator):
                current.set_state(saved)
            else:
                _require_like(current, saved, f"{type(self).__name__}.{name}")
                setattr(self, name, self._placed(name, saved))

    def remember(self) -> Undo:
        """Return a function that puts this part back into its present state. State declared after now is forgotten."""
        declared = dict(self.declared)
        values = {name: _remember(getattr(self, name)) for name in declared}

        def undo() -> None:
            for name in self.declared.keys() - declared.keys():
                delattr(self, name)
            self.__dict__["_declared"] = declared
            for name, value in values.items():
                setattr(self, name, value())

        return undo

    def require_finite(self) -> None:
        """Raise a `NonFiniteStateError` if the declared state holds NaN, or an infinity where none is declared."""
        for name in self.declared:
            value, full_name = getattr(self, name), f"{type(self).__name__}.{name}"
            if isinstance(value, Part):
                value.require_finite()
            elif isinstance(value, nn.Module):
                require_finite_module(value, full_name)
            else:
                require_finite(_state_of(value), full_name, infinite=name in self.__dict__.get("_infinite", ()))

    def check_restored(self, ctx: StepContext) -> None:
        """Raise a ValueError if the restored state cannot belong to these images and classes."""

    def footprint(self) -> Counter[str]:
        """Return the bytes of the declared state, by footprint line."""
        total: Counter[str] = Counter()
        for name, count_as in self.declared.items():
            value = getattr(self, name)
            total.update(value.footprint() if isinstance(value, Part) else {count_as: tree_bytes(_state_of(value))})
        return total


def _require_like(current: Any, saved: Any, name: str) -> None:
    """Raise a ValueError unless `saved` has the type of `current`, a tensor its dtype and shape, a number bounds."""
    if type(saved) is not type(current):
        raise ValueError(f"{name} is {type(saved).__name__}, not {type(current).__name__}")
    if type(saved) is int and abs(saved) >= LARGEST_COUNT:
        raise ValueError(f"{name} is {str(saved)[:20]}...: need a number below {LARGEST_COUNT:,}")
    if isinstance(current, Tensor) and (saved.dtype, saved.shape) != (current.dtype, current.shape):
        raise ValueError(f"{name} is {saved.dtype} {tuple(saved.shape)}, not {current.dtype} {tuple(current.shape)}")


def _remember(value: Any) -> Callable[[], Any]:
    if not isinstance(value, Part):
        return remember_value(value)
    undo = value.remember()

    def undone() -> Part:
        undo()
        return value

    return undone


def _state_of(value: Any) -> Tree:
    if isinstance(value, Part):
        return value.state()
    if isinstance(value, nn.Module):
        return module_state(value)
    if isinstance(value, torch.optim.Optimizer):
        return optimizer_state(value)
    if isinstance(value, torch.Generator):
        return value.get_state()
    return value
