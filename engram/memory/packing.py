"""Many small records as one tensor, so that a checkpoint stays one read."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engram.persistence.state import Tree


def pack(records: list[Tensor] | dict[int, Tensor]) -> Tree:
    """Return records, in a list or by slot, as one tensor with the sizes of all."""
    slots = list(records) if isinstance(records, dict) else None
    values = list(records.values()) if isinstance(records, dict) else records
    data = torch.cat(values) if values else torch.zeros(0, dtype=torch.uint8)
    return {"slots": slots, "sizes": [len(value) for value in values], "data": data}


def unpack(packed: Tree, check: Callable[[Tensor], None]) -> list[Tensor] | dict[int, Tensor]:
    """Return the records that `pack` packed.

    Args:
        packed: what `pack` returned.
        check: raises a ValueError if a record is not what it should be.
    """
    values, at = [], 0
    for size in packed["sizes"]:
        record = packed["data"][at : at + size]
        if record.dtype != torch.uint8 or len(record) != size:
            raise ValueError(f"a record of {size} bytes is not there")
        check(record)
        values.append(record.clone())
        at += size
    return values if packed["slots"] is None else dict(zip(packed["slots"], values, strict=True))
