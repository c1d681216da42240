"""Methods that run one at a time, so that several threads can share an object."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class ThreadLock:
    """A lock that one thread may take several times. A copy of it is a new lock, so its owner can be copied."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[ThreadLock], tuple[()]]:
        return ThreadLock, ()


class HasLock(Protocol):
    """An object with a lock."""

    lock: ThreadLock


S = TypeVar("S", bound=HasLock)


def exclusive(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Let a method wait until no other such method of the same object runs in another thread."""

    @wraps(method)
    def locked(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.lock:
            return method(self, *args, **kwargs)

    return locked
