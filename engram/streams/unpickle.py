"""Read pickles of published data sets safely: only plain values and arrays of numbers are allowed.

Python's own reader would call whatever a pickle names, and reserves memory as the pickle asks for it. This one knows
the instructions that plain values and arrays are written with and no others. Arrays are views of the given bytes, so a
pickle that is mapped into memory is read only where its arrays are.
"""

from __future__ import annotations

import codecs
import math
import mmap
import re
import struct
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from engram.streams.dataset import DataError

MOST_INSTRUCTIONS = 2_000_000
"""Largest number of instructions of a pickle, and of values in it. CIFAR-100 has about 200,000."""
LARGEST_PLAIN = 4096
"""Texts and bytes up to this length are plain values; longer ones are the content of arrays."""
LARGEST_IN_MEMORY = 64 << 20
"""Content that has to be decoded goes to a temporary file if it has more bytes."""
LONGEST_LINE = 1000
LONGEST_NUMBER = 100
DECODED_AT_ONCE = 1 << 20


class _PickleError(Exception):
    """Raised when a pickle is damaged or holds what does not belong in a data set."""


class _Mark:
    """Marks the place on the stack where the items of a tuple, list or dict begin."""


class _Dtype:
    """A numpy dtype. Only booleans, integers and floats of a fixed size are allowed."""

    def __init__(self, code: Any, *rest: Any) -> None:
        text = code.decode("latin1") if isinstance(code, bytes) else code
        if not isinstance(text, str) or not re.fullmatch(r"[biuf][1248]", text):
            raise _PickleError(f"arrays of {str(code)[:20]!r} do not belong in a data set")
        self.dtype = np.dtype(text)

    def build(self, state: Any) -> None:
        """Take in the byte order."""
        order = state[1].decode("latin1") if isinstance(state[1], bytes) else state[1]
        if order == ">":
            self.dtype = self.dtype.newbyteorder(">")
        elif order not in ("<", "|", "="):
            raise _PickleError("an array has an unknown byte order")


class _Array:
    """A numpy array. The attribute `array` is set once its state was read."""

    array: np.ndarray[Any, Any]

    def build(self, state: Any) -> None:
        """Take in the content."""
        _, shape, kind, fortran, content = state
        self.array = _array(content, kind, shape, "F" if fortran else "C")


def _array(content: Any, kind: Any, shape: Any, order: Any) -> np.ndarray[Any, Any]:
    if not isinstance(kind, _Dtype) or not isinstance(content, bytes | memoryview) or order not in ("C", "F"):
        raise _PickleError("an array has no valid dtype, content or memory order")
    if not isinstance(shape, tuple) or len(shape) > 8 or not all(type(side) is int and side >= 0 for side in shape):
        raise _PickleError("an array has no valid shape")
    if math.prod(shape) * kind.dtype.itemsize != len(content):
        raise _PickleError("the number of bytes of an array does not fit its shape")
    return np.frombuffer(content, kind.dtype).reshape(shape, order=order)


def _from_buffer(content: Any, kind: Any, shape: Any, order: Any) -> _Array:
    array = _Array()
    array.array = _array(content, kind, shape, order)
    return array


def _scalar(kind: Any, content: Any) -> Any:
    return _array(content, kind, (), "C").item()


class _Machine:
    """Runs the instructions of a pickle. The methods named in `_INSTRUCTIONS` are its instructions."""

    def __init__(self, content: bytes | mmap.mmap) -> None:
        self.content = content
        self.data = memoryview(content)
        self.at = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.may_decode = 2 * len(content)
        self.functions: dict[tuple[str, str], Callable[..., Any]] = {
            ("numpy", "ndarray"): _Array,
            ("numpy", "dtype"): _Dtype,
            ("numpy._core.multiarray", "_reconstruct"): lambda *ignored: _Array(),
            ("numpy._core.multiarray", "scalar"): _scalar,
            ("numpy._core.numeric", "_frombuffer"): _from_buffer,
            ("_codecs", "encode"): self._latin1,
        }

    def run(self) -> Any:
        """Return the value that the pickle describes."""
        for _ in range(MOST_INSTRUCTIONS):
            code = self.take(1)[0]
            if code == ord("."):
                return self.stack.pop()
            instruction = _INSTRUCTIONS.get(code)
            if instruction is None:
                raise _PickleError(f"the instruction {bytes([code])!r} does not belong in a data set")
            instruction(self)
        raise _PickleError(f"it has more than {MOST_INSTRUCTIONS:,} instructions")

    def take(self, count: int) -> memoryview:
        """Return the next `count` bytes."""
        if count > len(self.data) - self.at:
            raise _PickleError("it ends too early")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, layout: str) -> Any:
        """Return the next number, of a layout as in `struct`."""
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def line(self, longest: int = LONGEST_LINE) -> bytes:
        """Return the next line."""
        end = self.content.find(b"\n", self.at, self.at + longest)
        if end < 0:
            raise _PickleError("it has a line that does not end")
        line = bytes(self.take(end - self.at))
        self.at += 1
        return line

    def push_bytes(self, count: int) -> None:
        """Push the next `count` bytes; if they are many, as a view."""
        content = self.take(count)
        self.stack.append(bytes(content) if count <= LARGEST_PLAIN else content)

    def push_text(self, count: int) -> None:
        """Push the next `count` bytes as text; if they are many, as a view of its UTF-8 bytes."""
        content = self.take(count)
        self.stack.append(str(content, "utf-8", "surrogatepass") if count <= LARGEST_PLAIN else content)

    def push_integer(self, count: int) -> None:
        """Push an integer of `count` bytes."""
        if count > LONGEST_NUMBER:
            raise _PickleError("it has a number of too many digits")
        self.stack.append(int.from_bytes(self.take(count), "little", signed=True))

    def push_number(self, kind: Callable[[str], Any]) -> None:
        """Push a number that is written as a line of text."""
        text = self.line().decode("latin1").rstrip("L")
        if len(text) > LONGEST_NUMBER:
            raise _PickleError("it has a number of too many digits")
        self.stack.append({"00": False, "01": True}.get(text) if text in ("00", "01") else kind(text))

    def push_string(self) -> None:
        """Push bytes in quotes, as protocol 0 writes them."""
        self.stack.append(codecs.escape_decode(self.line(len(self.data))[1:-1])[0])

    def push_function(self, module: Any, name: Any) -> None:
        """Push the stand-in for a function or class."""
        known = self.functions.get((str(module).replace("numpy.core", "numpy._core"), str(name)))
        if known is None:
            raise _PickleError(f"{str(module)[:50]}.{str(name)[:50]} does not belong in a data set")
        self.stack.append(known)

    def named_function(self) -> None:
        """Push the function whose module and name are on the stack."""
        name, module = self.stack.pop(), self.stack.pop()
        self.push_function(module, name)

    def items(self) -> list[Any]:
        """Return and remove what is above the last mark."""
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is _Mark:
                found = self.stack[place + 1 :]
                del self.stack[place:]
                return found
        raise _PickleError("a mark is missing")

    def extend(self, items: list[Any]) -> None:
        """Append items to the list on top of the stack."""
        if type(self.stack[-1]) is not list:
            raise _PickleError("something is appended to what is not a list")
        self.stack[-1].extend(items)

    def update(self, items: list[Any]) -> None:
        """Set items, each a key and a value, of the dict on top of the stack."""
        if type(self.stack[-1]) is not dict or not all(isinstance(key, str | bytes | int) for key in items[::2]):
            raise _PickleError("a dict has a key that is neither a text nor a number")
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def push_dict(self, items: list[Any]) -> None:
        """Push a dict of items, each a key and a value."""
        self.stack.append({})
        self.update(items)

    def push_tuple(self, count: int) -> None:
        """Replace the upper values of the stack by a tuple of them."""
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def call(self) -> None:
        """Call a stand-in with arguments from the stack."""
        arguments, function = self.stack.pop(), self.stack.pop()
        if function not in self.functions.values() or type(arguments) is not tuple:
            raise _PickleError("it calls what cannot be called")
        self.stack.append(function() if function is _Array else function(*arguments))

    def build(self) -> None:
        """Give an array or a dtype its state."""
        state = self.stack.pop()
        if not isinstance(self.stack[-1], _Array | _Dtype) or type(state) is not tuple:
            raise _PickleError("it sets the state of something else than an array")
        self.stack[-1].build(state)

    def remember(self, index: int) -> None:
        """Keep the value on top of the stack for later."""
        self.memo[index] = self.stack[-1]

    def _latin1(self, text: Any, encoding: Any) -> bytes | memoryview:
        """Stand-in for `codecs.encode`: Python 3 writes bytes as latin1 text if Python 2 is to read them."""
        if encoding != "latin1" or not isinstance(text, str | memoryview):
            raise _PickleError(f"bytes encoded as {str(encoding)[:20]!r} do not belong in a data set")
        if isinstance(text, str):
            return text.encode("latin1")
        self.may_decode -= len(text)
        if self.may_decode < 0:
            raise _PickleError("it decodes the same text again and again")
        decoder = codecs.getincrementaldecoder("utf-8")()
        with tempfile.SpooledTemporaryFile(LARGEST_IN_MEMORY) as file:
            for start in range(0, len(text), DECODED_AT_ONCE):
                file.write(decoder.decode(text[start : start + DECODED_AT_ONCE]).encode("latin1"))
            if file.tell() <= LARGEST_IN_MEMORY:
                file.seek(0)
                return file.read()
            file.flush()
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


_INSTRUCTIONS: dict[int, Callable[[_Machine], Any]] = {
    ord(code): instruction
    for code, instruction in {
        "\x80": lambda m: m.take(1),
        "\x95": lambda m: m.take(8),
        "(": lambda m: m.stack.append(_Mark),
        "0": lambda m: m.stack.pop(),
        "1": lambda m: m.items(),
        "2": lambda m: m.stack.append(m.stack[-1]),
        "N": lambda m: m.stack.append(None),
        "\x88": lambda m: m.stack.append(True),
        "\x89": lambda m: m.stack.append(False),
        "I": lambda m: m.push_number(int),
        "L": lambda m: m.push_number(int),
        "F": lambda m: m.push_number(float),
        "J": lambda m: m.stack.append(m.number("<i")),
        "K": lambda m: m.stack.append(m.number("<B")),
        "M": lambda m: m.stack.append(m.number("<H")),
        "G": lambda m: m.stack.append(m.number(">d")),
        "\x8a": lambda m: m.push_integer(m.number("<B")),
        "\x8b": lambda m: m.push_integer(m.number("<I")),
        "S": lambda m: m.push_string(),
        "V": lambda m: m.stack.append(m.line(len(m.data)).decode("raw-unicode-escape")),
        "T": lambda m: m.push_bytes(m.number("<I")),
        "U": lambda m: m.push_bytes(m.number("<B")),
        "B": lambda m: m.push_bytes(m.number("<I")),
        "C": lambda m: m.push_bytes(m.number("<B")),
        "\x8e": lambda m: m.push_bytes(m.number("<Q")),
        "\x96": lambda m: m.push_bytes(m.number("<Q")),
        "X": lambda m: m.push_text(m.number("<I")),
        "\x8c": lambda m: m.push_text(m.number("<B")),
        "\x8d": lambda m: m.push_text(m.number("<Q")),
        "]": lambda m: m.stack.append([]),
        "}": lambda m: m.stack.append({}),
        ")": lambda m: m.stack.append(()),
        "l": lambda m: m.stack.append(m.items()),
        "d": lambda m: m.push_dict(m.items()),
        "t": lambda m: m.stack.append(tuple(m.items())),
        "\x85": lambda m: m.push_tuple(1),
        "\x86": lambda m: m.push_tuple(2),
        "\x87": lambda m: m.push_tuple(3),
        "a": lambda m: m.extend([m.stack.pop()]),
        "e": lambda m: m.extend(m.items()),
        "s": lambda m: m.update([m.stack.pop(-2), m.stack.pop()]),
        "u": lambda m: m.update(m.items()),
        "c": lambda m: m.push_function(m.line().decode("latin1"), m.line().decode("latin1")),
        "\x93": lambda m: m.named_function(),
        "R": lambda m: m.call(),
        "b": lambda m: m.build(),
        "p": lambda m: m.remember(int(m.line())),
        "q": lambda m: m.remember(m.number("<B")),
        "r": lambda m: m.remember(m.number("<I")),
        "\x94": lambda m: m.remember(len(m.memo)),
        "g": lambda m: m.stack.append(m.memo[int(m.line())]),
        "h": lambda m: m.stack.append(m.memo[m.number("<B")]),
        "j": lambda m: m.stack.append(m.memo[m.number("<I")]),
    }.items()
}


def load_arrays(content: bytes | mmap.mmap, name: str) -> Any:
    """Return the content of a pickle of plain values and numpy arrays. Anything else raises a DataError.

    Args:
        content: bytes of the pickle, or the file mapped into memory.
        name: name of the file, for messages.
    """
    try:
        return _finished(_Machine(content).run(), {})[0]
    except Exception as error:
        raise DataError(f"{name} is damaged or not a data set ({error}): obtain it again") from error


def _finished(node: Any, done: dict[int, tuple[Any, int]]) -> tuple[Any, int]:
    """Return the value with stand-ins replaced by their arrays, and the number of values in it.

    Args:
        node: the value.
        done: results so far, by the identity of their value. A value that is used in many places counts in each.
    """
    if isinstance(node, _Array):
        return node.array, 1
    if isinstance(node, memoryview) or node is _Mark or callable(node):
        raise _PickleError("it holds a very long text or a function")
    if not isinstance(node, dict | list | tuple):
        return node, 1
    if id(node) in done:
        return done[id(node)]
    done[id(node)] = (None, MOST_INSTRUCTIONS)  # refuses a value that contains itself
    parts = [_finished(part, done) for part in (node.values() if isinstance(node, dict) else node)]
    count = 1 + sum(size for _, size in parts)
    if count > MOST_INSTRUCTIONS:
        raise _PickleError(f"it holds more than {MOST_INSTRUCTIONS:,} values")
    values = [value for value, _ in parts]
    done[id(node)] = (dict(zip(node, values, strict=True)) if isinstance(node, dict) else type(node)(values), count)
    return done[id(node)]
