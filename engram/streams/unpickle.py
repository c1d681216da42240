"""Reads the pickles that data sets are published as, admitting nothing but arrays and plain values."""

from __future__ import annotations

import io
import pickle
from typing import Any

_ADMITTED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.numeric", "_frombuffer"),
}


def _latin1(text: str, encoding: str) -> bytes:
    """How Python 3 writes the bytes of an array for Python 2 to read."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes encoded as {encoding!r} do not belong in a data set")
    return text.encode("latin1")


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return _latin1
        module = module.replace("numpy.core", "numpy._core")
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"{module}.{name} does not belong in a data set")
        return super().find_class(module, name)


def load_arrays(content: bytes) -> Any:
    """Unpickle plain values and numpy arrays; anything that would import or call something else is refused."""
    return _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
