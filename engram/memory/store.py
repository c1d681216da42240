"""The memory: slots of encoded images with their labels, and who may change them."""

from __future__ import annotations

import logging
import math

import torch
from torch import Tensor

from engram.core import Batch, Context, Part
from engram.errors import InputError
from engram.memory.codec import Codec, Float32, parse_codec
from engram.state import Tree

COLUMNS = {"labels": -1, "claimed": False, "summary": False, "score": 0.0, "priority": 0.0, "ids": -1}
"""What is kept for each slot, and what an empty one holds."""
FIRST_SLOTS = 16

_log = logging.getLogger(__name__)


class Store(Part):
    """Slots are filled in order; `size` of them hold an image.

    The limit is a number of images, or a number of bytes of encoded images: then `capacity` is an estimate, images are
    removed to make room for others, and the last one moves into the gap, so a slot number is good only until the next
    change; `ids` tell images apart for good.

    A *claimed* slot belongs to its class: a policy leaves it alone and only summarizing rewrites it. A *summary* is a
    slot that summarizing has rewritten. With `keep_originals` the first image of each claimed slot is kept beside it,
    to be looked at (it costs its bytes, and nothing learns from it).

    Args:
        capacity: images the memory holds, or None.
        shape: of an image.
        codec: how images become bytes.
        device: where images are read to.
        keep_originals: keep the first image of each claimed slot.
        budget: bytes of encoded images the memory holds, or None.
    """

    def __init__(
        self,
        capacity: int | None,
        shape: tuple[int, int, int],
        codec: Codec | None = None,
        device: torch.device | None = None,
        keep_originals: bool = False,
        budget: int | None = None,
    ) -> None:
        if (capacity is None) == (budget is None):
            raise InputError("a memory is limited in images or in bytes: give one of the two")
        if capacity is not None and capacity < 1:
            raise InputError(f"memory_size is {capacity}: a memory needs at least one slot")
        self.codec: Codec = codec or Float32()
        blank = len(self.codec.encode(torch.zeros(1, *shape))[0])
        if budget is not None and blank > budget:
            raise InputError(
                f"memory_bytes is {budget}: not even a blank image, {blank} bytes as {self.codec.name}, fits"
            )
        self.shape, self.budget = shape, budget
        self.limit = capacity
        self.device = device or torch.device("cpu")
        self.keep_originals = keep_originals
        self.version = 0
        self._told_too_large = False
        slots = FIRST_SLOTS if capacity is None else capacity
        self.add_state("records", [], count_as="images")
        self.add_state("originals", {}, count_as="originals")
        for name, empty in COLUMNS.items():
            self.add_state(name, torch.full((slots,), empty), count_as="labels" if name == "labels" else "bookkeeping")
        self.add_state("seen", 0)
        self.add_state("stored", 0)
        self.records: list[Tensor]
        self.originals: dict[int, Tensor]
        """By id."""
        self.labels: Tensor
        self.claimed: Tensor
        self.summary: Tensor
        self.score: Tensor
        """A number a policy may keep for each image."""
        self.priority: Tensor
        """Where bytes are short, the lowest goes first."""
        self.ids: Tensor
        self.seen: int
        self.stored: int
        """Images ever stored."""

    @property
    def used(self) -> int:
        """Bytes of the encoded images."""
        return sum(len(record) for record in self.records)

    @property
    def capacity(self) -> int:
        """Images the memory holds when full; where bytes are the limit, about so many."""
        return self.size + self.free if self.limit is None else self.limit

    @property
    def size(self) -> int:
        return len(self.records)

    @property
    def free(self) -> int:
        """Further images that fit; where bytes are the limit, of the mean size so far."""
        if self.budget is None:
            return (self.limit or 0) - self.size
        used = self.used
        typical = used / self.size if self.size else math.prod(self.shape)
        return max(int((self.budget - used) // typical), 0 if self.size else 1)

    @property
    def has_filled(self) -> bool:
        """Whether it was full once: there is no room, or images were left out or replaced."""
        return not self.free or self.seen > self.size

    def read(self, slots: Tensor) -> Batch:
        """Decoded images and labels of these slots, in this order."""
        if not len(slots):
            return Batch(torch.zeros(0, *self.shape, device=self.device), slots.to(self.device))
        records = [self.records[slot] for slot in slots.tolist()]
        return Batch(self.codec.decode(records, self.shape).to(self.device), self.labels[slots].to(self.device))

    def put(self, slot: int, image: Tensor, label: int, priority: float = 1.0) -> int | None:
        """Store one image; `slot` is filled and unclaimed, or the next free one. Returns where it is then.

        Where bytes are the limit, unclaimed images of lower priority make room for it; None where they cannot.
        """
        return self.put_record(slot, self.codec.encode(image[None])[0], label, priority)

    def put_record(self, slot: int, record: Tensor, label: int, priority: float = 1.0) -> int | None:
        """The same of an image that is encoded already."""
        if slot > self.size or slot == self.limit:
            raise IndexError(f"slot {slot} is neither filled nor the next free one ({self.size} of {self.limit})")
        if slot < self.size and self.claimed[slot]:
            raise ValueError(f"slot {slot} is claimed by class {int(self.labels[slot])}: release it first")
        if self.budget is not None and len(record) > self.budget and not self._told_too_large:
            self._told_too_large = True
            _log.warning(
                "an image takes %d bytes as %s, more than the %d the memory has: it cannot be stored, and there may be "
                "more of them",
                *(len(record), self.codec.name, self.budget),
            )
        replaced = int(self.ids[slot]) if slot < self.size else None
        if not self._make_room(
            len(record) - (len(self.records[slot]) if replaced is not None else 0), priority, replaced
        ):
            return None
        slot = self.size if replaced is None else self.slot_of(replaced)
        if replaced is None:
            if slot == len(self.labels):
                self._double_columns()
            self.records.append(record)
        else:
            self.records[slot] = record
        self.labels[slot], self.priority[slot], self.score[slot] = label, priority, 0.0
        self.summary[slot] = False
        self.ids[slot] = self.stored
        self.stored += 1
        self.version += 1
        return slot

    def rewrite(self, slots: Tensor, images: Tensor) -> None:
        """Replace the images of claimed slots by summaries; labels stay.

        Where bytes are the limit, unclaimed images make room; a summary for which there is none is left as it was.
        """
        records = self.codec.encode(images)
        for identity, record in zip(self.ids[slots].tolist(), records, strict=True):
            slot = self.slot_of(identity)
            if self._make_room(len(record) - len(self.records[slot]), math.inf, identity):
                slot = self.slot_of(identity)
                self.records[slot] = record
                self.summary[slot] = True
        self.version += 1

    def claim(self, slot: int) -> None:
        """Give a filled slot to its class for good."""
        self.claimed[slot] = True
        if self.keep_originals:
            self.originals[int(self.ids[slot])] = self.records[slot].clone()

    def release(self, slot: int) -> None:
        self.claimed[slot] = False
        self.originals.pop(int(self.ids[slot]), None)

    def remove(self, slot: int) -> None:
        """Empty a slot; the last image moves into it."""
        last = self.size - 1
        self.release(slot)
        self.records[slot] = self.records[last]
        self.records.pop()
        for name, empty in COLUMNS.items():
            column = getattr(self, name)
            column[slot] = column[last]
            column[last] = empty
        self.version += 1

    def slot_of(self, identity: int) -> int:
        """Where the image of this id is."""
        return int((self.ids == identity).nonzero()[0])

    def stored_since(self, stored: int) -> list[int]:
        """Slots of the images that are there and were not when `stored` images had ever been."""
        return (self.ids[: self.size] >= stored).nonzero().flatten().tolist()

    def missing_bytes(self, image: Tensor) -> int:
        """Bytes that claimed images would have to give up before this one fits, if all unclaimed ones went."""
        if self.budget is None:
            return 0
        claimed = sum(len(self.records[slot]) for slot in self.claimed[: self.size].nonzero().flatten().tolist())
        return max(0, claimed + len(self.codec.encode(image[None])[0]) - self.budget)

    def _make_room(self, length: int, priority: float, spared: int | None) -> bool:
        """Remove unclaimed images of lower priority, the lowest first, until `length` more bytes fit; or do nothing."""
        if self.budget is None:
            return True
        missing = length - (self.budget - self.used)
        going: list[int] = []
        for slot in self.priority[: self.size].argsort(stable=True).tolist():
            if missing <= 0:
                break
            if not self.claimed[slot] and int(self.ids[slot]) != spared and self.priority[slot] < priority:
                going.append(int(self.ids[slot]))
                missing -= len(self.records[slot])
        if missing > 0:
            return False
        for identity in going:
            self.remove(self.slot_of(identity))
        return True

    def _double_columns(self) -> None:
        """Where bytes are the limit, the number of slots is not known in advance."""
        for name, empty in COLUMNS.items():
            column = getattr(self, name)
            setattr(self, name, torch.cat([column, torch.full_like(column, empty)]))

    def filled(self) -> Tensor:
        return torch.arange(self.size)

    def unclaimed(self) -> Tensor:
        """Filled slots no class has claimed."""
        return (~self.claimed[: self.size]).nonzero().flatten()

    def real_images(self) -> Tensor:
        """Unclaimed slots that hold an original image (M_O of the paper)."""
        return (~self.claimed[: self.size] & ~self.summary[: self.size]).nonzero().flatten()

    def claimed_by(self, label: int) -> Tensor:
        """The slots of one class's summary (M_c of the paper)."""
        return (self.claimed & (self.labels == label)).nonzero().flatten()

    def owns_share(self, label: int, quota: int, classes: int) -> bool:
        """Whether a class has claimed so many slots; where bytes are the limit, also if one more image like its own
        would take it beyond an equal share of them."""
        own = [len(self.records[slot]) for slot in self.claimed_by(label).tolist()]
        if len(own) >= quota or self.budget is None or not own:
            return len(own) >= quota
        return sum(own) + sum(own) / len(own) > self.budget / classes

    def read_original(self, slot: int) -> Tensor:
        """The first image of a claimed slot, if the store was told to keep it."""
        original = self.originals.get(int(self.ids[slot]))
        if original is None:
            raise InputError(f"no original is kept for slot {slot}: create the learner with keep_originals=True")
        return self.codec.decode([original], self.shape)[0]

    def check_restored(self, ctx: Context) -> None:
        held = self.labels[: self.size]
        if self.size and not 0 <= int(held.min()) <= int(held.max()) < ctx.classes:
            raise ValueError(f"the memory holds images of a class beyond the {ctx.classes} that were seen")

    def state(self) -> Tree:
        return super().state() | {name: _pack(getattr(self, name)) for name in ("records", "originals")}

    def load_state(self, tree: Tree) -> None:
        records = _unpack(tree["records"])
        while self.limit is None and len(self.labels) < len(tree["labels"]):
            self._double_columns()
        super().load_state(tree | {"records": records, "originals": _unpack(tree["originals"])})
        held = [*self.records, *self.originals.values()]
        if len(self.records) > len(self.labels) or any(record.dtype != torch.uint8 for record in held):
            raise ValueError(f"{len(self.records)} records do not fit a memory of {self.limit} images")
        if self.budget is not None and self.used > self.budget:
            raise ValueError(f"{self.used} bytes of images do not fit a memory of {self.budget} bytes")
        for record in held:
            self.codec.decode([record], self.shape)
        self.version += 1


def limited_store(
    memory_size: int | None,
    memory_bytes: int | None,
    shape: tuple[int, int, int],
    codec: str,
    device: torch.device | None = None,
    keep_originals: bool = False,
) -> Store:
    """A store of so many images or bytes; a limit in bytes is one in images where every image takes the same."""
    made = parse_codec(codec)
    each = made.record_bytes(shape)
    if memory_bytes is not None and each is not None and each <= memory_bytes:
        memory_size, memory_bytes = memory_bytes // each, None
    return Store(memory_size, shape, made, device, keep_originals, memory_bytes)


def _pack(records: list[Tensor] | dict[int, Tensor]) -> Tree:
    """Many small records as one tensor, so that a checkpoint stays one read."""
    slots = list(records) if isinstance(records, dict) else None
    values = list(records.values()) if isinstance(records, dict) else records
    data = torch.cat(values) if values else torch.zeros(0, dtype=torch.uint8)
    return {"slots": slots, "sizes": [len(value) for value in values], "data": data}


def _unpack(packed: Tree) -> list[Tensor] | dict[int, Tensor]:
    values = [value.clone() for value in packed["data"].split(packed["sizes"])] if packed["sizes"] else []
    return values if packed["slots"] is None else dict(zip(packed["slots"], values, strict=True))
