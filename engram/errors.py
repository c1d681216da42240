"""What is refused and what can go wrong, as exceptions, and the checks of numbers every setting shares."""

from __future__ import annotations

from numbers import Integral
from typing import Any


class InputError(ValueError):
    """The caller's data or settings were refused; nothing was changed."""


class NotReadyError(InputError):
    """There is nothing yet to predict from."""


class NonFiniteLossError(RuntimeError):
    """Learning diverged. The step was not taken, but the batch is half learned: go on from the last save."""


def whole_number(name: str, value: Any, least: int | None = None, otherwise: str = "") -> int:
    """A setting that is one, also if numpy made it; `otherwise` tells what else it may be."""
    if isinstance(value, bool) or not isinstance(value, Integral) or (least is not None and int(value) < least):
        bound = "" if least is None else f", {least} at least"
        raise InputError(f"{name} is {value!r}: need a whole number{bound}{otherwise and f', {otherwise}'}")
    return int(value)


def require_at_least(least: int, **counts: int) -> None:
    """Refuse settings that are smaller."""
    for name, value in counts.items():
        if value < least:
            raise InputError(f"{name} is {value}: need at least {least}")
