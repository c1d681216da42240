"""One limit for everything a learner keeps: the memory gets what the rest leaves of it.

    images + slots ≤ total − averaged net − optimizer states − bookkeeping − max(reserve, queue + copies)

The reserve is the most that queue and working copies needed so far, so that images need not leave again whenever a task
begins. Weights of the nets count only if they are asked to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from engram.base.errors import InputError
from engram.memory.budget import ByteLimit
from engram.memory.store import Store

FLOAT_BYTES = 4
NETS = ("net", "theta")
TEMPORARY = ("queue", "working_copies")
"""Lines that empty when a task ends."""


def bounded_bytes(footprint: Mapping[str, int], counting_nets: bool) -> int:
    """Return the bytes of a footprint that `total_bytes` limits."""
    left_out = ("total",) if counting_nets else ("total", *NETS)
    return sum(size for line, size in footprint.items() if line not in left_out)


def divide_total(
    memory: Store, footprint: Callable[[], Mapping[str, int]], reserve: int, options: Mapping[str, Any]
) -> None:
    """Limit a memory to what the rest leaves, and remove the images that no longer fit.

    It raises an `InputError` that shows what takes the rest if not even a blank image fits.

    Args:
        memory: a memory that was made for `total_bytes`.
        footprint: returns the bytes held by everything, by line.
        reserve: bytes that are set aside for queue and working copies.
        options: total_bytes and count_nets.
    """
    assert isinstance(memory.limit, ByteLimit), "a memory that shares a total is limited in bytes"
    limit, total = memory.limit, int(options["total_bytes"])
    memory.trim()
    needs = needed_bytes(footprint(), limit.taken(memory), reserve, options["count_nets"])
    left = total - sum(needs.values())
    smallest = limit.charge(len(memory.completed(memory.codec.encode(torch.zeros(1, *memory.shape)))[0]))
    if left < smallest:
        raise InputError(_explanation(total, {"the smallest memory": smallest} | needs))
    limit.bytes = left
    limit.shrink(memory)
    memory.trim()


def most_copies(total: int, pixels: int) -> int:
    """Return how many summaries may have working copies (image and velocity as floats): an eighth of the total."""
    return total // 8 // (2 * FLOAT_BYTES * pixels)


def needed_bytes(footprint: Mapping[str, int], held: int, reserve: int, counting_nets: bool) -> dict[str, int]:
    """Return the bytes that everything but the images and their slots needs, by line.

    Args:
        footprint: bytes held, by line.
        held: bytes among them of images and their slots.
        reserve: bytes that are set aside for queue and working copies.
        counting_nets: whether the weights of the nets count.
    """
    temporary = sum(footprint[line] for line in TEMPORARY)
    slots = held - footprint["images"] - footprint["labels"]
    left_out = ("total", "images", "labels", *TEMPORARY, *(() if counting_nets else NETS))
    lines = {line: size for line, size in footprint.items() if line not in left_out}
    return lines | {"bookkeeping": lines["bookkeeping"] - slots, "queue and working copies": max(reserve, temporary)}


def _explanation(total: int, needs: Mapping[str, int]) -> str:
    """Return what takes how many bytes, and how many would do."""
    table = "\n".join(f"  {size:>12,}  {line}" for line, size in needs.items() if size > 0)
    return (
        f"total_bytes is {total:,}, and this learner needs at least {sum(needs.values()):,}:\n{table}\n"
        "Give it that much, or leave out what costs most: average=None, another method, a narrower net, a smaller queue"
    )
