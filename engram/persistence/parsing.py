"""Parse JSON, YAML and safetensors files with a bound on what that allocates, whoever wrote them.

Parsing JSON takes up to about a hundred bytes for every comma and bracket. So these are counted first. A value of YAML
may stand in many places, each of them again in many; so places are counted before anything is made of them.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import yaml

from engram.persistence.files import NotAPlainFileError, open_plain, require_size

MOST_VALUES = 3_000_000
"""Most values in a JSON text, counted by its commas and opening brackets."""
MOST_YAML_VALUES = 10_000
"""Most values in a YAML text; one that stands in several places counts in each."""
LARGEST_HEADER = 1 << 26
"""Most bytes of the header of a safetensors file."""
MOST_TENSORS = 50_000
"""Most tensors in a safetensors file."""
DENSE = 1 << 28
"""A file that has more bytes than this must be stored as bytes: at most 15 of 16 may be holes."""


def parse_json(content: bytes) -> Any:
    """Return the value of a JSON text, or raise a ValueError if it is damaged, or too much to hold."""
    if content.count(b",") + content.count(b"[") + content.count(b"{") > MOST_VALUES:
        raise ValueError(f"it holds more than {MOST_VALUES:,} values")
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_yaml(content: bytes) -> Any:
    """Return the value of a YAML text, or raise a ValueError if it is damaged, or too much to hold."""
    try:
        loader = yaml.SafeLoader(content)
        node = loader.get_single_node()
        if node is None:
            return None
        _count_places(node, {})
        value = loader.construct_document(node)
        _require_text_keys(value)
        return value
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except (yaml.YAMLError, TypeError, OverflowError) as error:
        raise ValueError(str(error)) from error


def _count_places(node: yaml.Node, known: dict[int, int]) -> int:
    """Return how many values a node and those below it become; `known` holds those counted already."""
    if id(node) not in known:
        known[id(node)] = MOST_YAML_VALUES  # until it is counted: a node inside itself has no end
        below = node.value if isinstance(node, yaml.CollectionNode) else []
        inner = [each for entry in below for each in (entry if isinstance(entry, tuple) else (entry,))]
        known[id(node)] = 1 + sum(_count_places(each, known) for each in inner)
    if known[id(node)] > MOST_YAML_VALUES:
        raise ValueError(f"it holds more than {MOST_YAML_VALUES:,} values")
    return known[id(node)]


def _require_text_keys(value: Any) -> None:
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"{key!r} is not a name: put quotes around it")
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _require_text_keys(each)


def read_safetensors(path: Path, limit: int) -> bytes:
    """Return the content of a safetensors file whose header fits its size, or raise a ValueError.

    Nothing but the header is read of a file that says other sizes than it has, or that is mostly holes.
    """
    with open(open_plain(path, os.O_RDONLY), "rb") as file:
        size = require_size(file.fileno(), path, limit)
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(LARGEST_HEADER, size - 8):
            raise ValueError(f"{path.name} has no header of tensors")
        _check_header(file.read(length), size - 8 - length, path.name)
        if size > DENSE and _stored_bytes(file.fileno(), size) < size // 16:
            raise NotAPlainFileError(f"{path} has {size:,} bytes, but hardly any are stored: it is not read")
        file.seek(0)
        return file.read(size)


def safetensors_facts(content: bytes) -> dict[str, str]:
    """Return the texts by name that a safetensors file holds beside its tensors."""
    header = parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")])
    facts: dict[str, str] = header.get("__metadata__", {})
    return facts


def _check_header(header: bytes, data: int, name: str) -> None:
    """Raise a ValueError unless a header describes so many bytes of tensors, and not too many tensors."""
    entries = parse_json(header)
    if not isinstance(entries, dict) or len(entries) > MOST_TENSORS:
        raise ValueError(f"{name} has no header of at most {MOST_TENSORS:,} tensors")
    ends = [entry["data_offsets"][1] for tensor, entry in entries.items() if tensor != "__metadata__"]
    if max(ends, default=0) != data:
        raise ValueError(f"{name} describes {max(ends, default=0):,} bytes of tensors and has {data:,}")


def _stored_bytes(descriptor: int, size: int) -> float:
    """Return how many bytes of a file are stored, as far as the file system tells holes from data."""
    if not hasattr(os, "SEEK_DATA"):
        return math.inf
    stored, at = 0, 0
    try:
        while at < size and stored < size // 16:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
            at = os.lseek(descriptor, start, os.SEEK_HOLE)
            stored += at - start
    except OSError:  # no data behind this place
        return stored
    return stored
