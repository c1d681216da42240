"""Read pickles of published data sets safely: only plain values and arrays of numbers are allowed.

A pickle could misuse numpy's own functions to read foreign memory, so it gets none of them. Stand-ins receive the
description of a pickled array instead, check it, and build the array from its bytes.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from typing import Any

import numpy as np

from engram.streams.dataset import DataError


class _Dtype:
    """Stand-in for a numpy dtype. Only booleans, integers and floats of a fixed size are allowed."""

    def __init__(self, code: Any, *rest: Any) -> None:
        text = code.decode("latin1") if isinstance(code, bytes) else code
        if not isinstance(text, str) or not re.fullmatch(r"[biuf][1248]", text):
            raise pickle.UnpicklingError(f"arrays of {str(code)[:20]!r} do not belong in a data set")
        self.dtype = np.dtype(text)

    def __setstate__(self, state: Any) -> None:
        order = state[1].decode("latin1") if isinstance(state[1], bytes) else state[1]
        if order == ">":
            self.dtype = self.dtype.newbyteorder(">")
        elif order not in ("<", "|", "="):
            raise pickle.UnpicklingError("an array has an unknown byte order")


class _Array:
    """Stand-in for a numpy array. The attribute `array` is set once the state was read."""

    array: np.ndarray[Any, Any]

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, content = state
        self.array = _array(content, kind, shape, "F" if fortran else "C")


def _array(content: Any, kind: Any, shape: Any, order: Any) -> np.ndarray[Any, Any]:
    if not isinstance(kind, _Dtype) or not isinstance(content, bytes | bytearray) or order not in ("C", "F"):
        raise pickle.UnpicklingError("an array has no valid dtype, content or memory order")
    if not isinstance(shape, tuple) or not all(type(side) is int and side >= 0 for side in shape):
        raise pickle.UnpicklingError("an array has no valid shape")
    if math.prod(shape) * kind.dtype.itemsize != len(content):
        raise pickle.UnpicklingError("the number of bytes of an array does not fit its shape")
    return np.frombuffer(bytes(content), kind.dtype).reshape(shape, order=order)


def _reconstruct(*ignored: Any) -> _Array:
    """Stand-in for numpy's `_reconstruct`, which makes an array whose state follows."""
    return _Array()


def _from_buffer(content: Any, kind: Any, shape: Any, order: Any) -> _Array:
    """Stand-in for numpy's `_frombuffer`, which makes an array from its bytes."""
    array = _Array()
    array.array = _array(content, kind, shape, order)
    return array


def _latin1(text: str, encoding: str) -> bytes:
    """Stand-in for `codecs.encode`: Python 3 writes bytes as latin1 text if Python 2 is to read them."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes encoded as {str(encoding)[:20]!r} do not belong in a data set")
    return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _latin1,
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = _STAND_INS.get((module.replace("numpy.core", "numpy._core"), name))
        if known is None:
            raise pickle.UnpicklingError(f"{module}.{name} does not belong in a data set")
        return known


def load_arrays(content: bytes, name: str) -> Any:
    """Return the content of a pickle of plain values and numpy arrays. Anything else raises a DataError.

    Args:
        content: bytes of the pickle.
        name: name of the file, for messages.
    """
    try:
        return _finished(_ArrayUnpickler(io.BytesIO(content), encoding="bytes").load())
    except Exception as error:
        raise DataError(f"{name} is damaged or not a data set ({error}): obtain it again") from error


def _finished(node: Any) -> Any:
    """Return the value with the stand-ins replaced by their arrays."""
    if isinstance(node, _Array):
        return node.array
    if isinstance(node, dict):
        return {key: _finished(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return type(node)(_finished(value) for value in node)
    return node
