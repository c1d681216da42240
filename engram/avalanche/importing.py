"""Import Avalanche beside a build of torch that lacks operators of torchvision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch


@contextmanager
def without_missing_operators() -> Iterator[None]:
    """Let torchvision be imported although this torch does not know its compiled operators, such as `nms`.

    torchvision describes its operators to torch when it is imported, and fails where they were built for another torch.
    Inside this context, such descriptions are left out. Avalanche uses none of these operators.
    """
    register = torch.library.register_fake

    def register_known(name: Any, *others: Any, **facts: Any) -> Any:
        describe: Any = register(name, *others, **facts)
        return known_only(describe) if str(name).startswith("torchvision::") else describe

    def known_only(describe: Callable[..., Any]) -> Callable[..., Any]:
        def describe_if_known(function: Callable[..., Any]) -> Callable[..., Any]:
            with suppress(RuntimeError):
                describe(function)
            return function

        return describe_if_known

    torch.library.register_fake = register_known
    try:
        yield
    finally:
        torch.library.register_fake = register
