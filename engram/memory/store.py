"""The memory: slots of encoded images with their labels, and which class owns them."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from engram.base.batch import Batch
from engram.base.context import MemoryContext
from engram.base.errors import InputError
from engram.base.part import Part
from engram.base.undo import Undo
from engram.memory.budget import FIRST_SLOTS, ByteLimit, Limit, SlotLimit
from engram.memory.codecs import Codec, Float32, parse_codec
from engram.persistence.finite import require_finite
from engram.persistence.state import Tree

COLUMNS = {"labels": -1, "claimed": False, "summary": False, "score": 0.0, "priority": 0.0, "ids": -1}
"""Values kept for each slot, with the value of an empty slot."""
SLOT_BYTES = sum(torch.tensor(empty).element_size() for empty in COLUMNS.values())
"""Bytes of these values."""
INFINITE = ("priority",)
"""Values that may be infinite: an image that must not leave has an infinite priority."""

_log = logging.getLogger(__name__)


class Store(Part):
    """Slots of encoded images. They are filled in order; the first `size` slots hold an image.

    Where bytes are the limit, images are removed to make room for others, and the last image moves into the gap: a slot
    number is then good only until the next change, while `ids` identify images for good.

    A *claimed* slot belongs to its class: a policy leaves it alone, and only summarizing rewrites it. A *summary* is a
    slot that summarizing has rewritten.

    Args:
        limit: images or bytes the memory may hold; a plain number means images.
        shape: channels, height and width of an image.
        codec: how images become bytes; float32 if not given.
        keep_originals: keep the first image of each claimed slot, to be looked at. It costs its bytes, and nothing
            learns from it.
    """

    def __init__(
        self, limit: Limit | int, shape: tuple[int, int, int], codec: Codec | None = None, keep_originals: bool = False
    ) -> None:
        self.limit = SlotLimit(limit) if isinstance(limit, int) else limit
        self.codec: Codec = codec or Float32()
        self.limit.check_codec(self.codec, shape)
        self.shape, self.pixels = shape, math.prod(shape)
        self.keep_originals = keep_originals
        self.version = 0
        self._warned_of_size = False
        self.add_state("records", [], count_as="images", on_cpu=True)
        self.add_state("originals", {}, count_as="originals", on_cpu=True)
        for name, empty in COLUMNS.items():
            column = torch.full((self.limit.first_slots,), empty)
            line = "labels" if name == "labels" else "bookkeeping"
            self.add_state(name, column, count_as=line, on_cpu=True, infinite=name in INFINITE)
        self.add_state("seen", 0)
        self.add_state("stored", 0)
        self.records: list[Tensor]
        self.originals: dict[int, Tensor]
        """First images of claimed slots, by id."""
        self.labels: Tensor
        self.claimed: Tensor
        self.summary: Tensor
        self.score: Tensor
        """A number that a policy may keep for each image."""
        self.priority: Tensor
        """Where bytes are short, the image of the lowest priority leaves first."""
        self.ids: Tensor
        self.seen: int
        """Number of images offered so far."""
        self.stored: int
        """Number of images stored so far."""

    @property
    def used(self) -> int:
        """Bytes of the encoded images."""
        return sum(len(record) for record in self.records)

    @property
    def capacity(self) -> int:
        """Images the memory holds when full; where bytes are the limit, an estimate."""
        return self.size + self.free

    @property
    def size(self) -> int:
        """Images in the memory."""
        return len(self.records)

    @property
    def free(self) -> int:
        """Further images that fit; where bytes are the limit, an estimate from the mean size so far."""
        return self.limit.free(self)

    @property
    def has_filled(self) -> bool:
        """Whether the memory was ever full: nothing more fits, or images were left out or replaced."""
        return not self.free or self.seen > self.size

    def read(self, slots: Tensor) -> Batch:
        """Return the decoded images and labels of these slots, in this order."""
        if not len(slots):
            return Batch(torch.zeros(0, *self.shape, device=self.device), slots.to(self.device))
        records = [self.records[slot] for slot in slots.tolist()]
        return Batch(self.codec.decode(records, self.shape).to(self.device), self.labels[slots].to(self.device))

    def put(self, slot: int, image: Tensor, label: int, priority: float = 1.0) -> int | None:
        """Store one image and return its slot then, or None if there was no room.

        Args:
            slot: a filled slot that is not claimed, whose image is replaced, or the next free one.
            image: pixels (C,H,W).
            label: index of its class.
            priority: where bytes are the limit, unclaimed images of lower priority make room for it.
        """
        return self.put_record(slot, self.codec.encode(image[None])[0], label, priority)

    def put_record(self, slot: int, record: Tensor, label: int, priority: float = 1.0) -> int | None:
        """Store an image that is encoded already; otherwise like `put`."""
        if slot > self.size or not self.limit.has_slot(slot):
            raise IndexError(f"slot {slot} is neither filled nor the next free one ({self.size} are filled)")
        if slot < self.size and self.claimed[slot]:
            raise ValueError(f"slot {slot} is claimed by class {int(self.labels[slot])}: release it first")
        replaced = int(self.ids[slot]) if slot < self.size else None
        more = len(record) - (len(self.records[slot]) if replaced is not None else 0)
        if not self.limit.make_room(self, more, priority, replaced):
            self._warn_of_size(record)
            return None
        slot = self.size if replaced is None else self.slot_of(replaced)
        if replaced is None:
            if slot == len(self.labels):
                self._resize_columns(max(2 * slot, FIRST_SLOTS))
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
            if self.limit.make_room(self, len(record) - len(self.records[slot]), math.inf, identity):
                slot = self.slot_of(identity)
                self.records[slot] = record
                self.summary[slot] = True
        self.version += 1

    def claim(self, slot: int) -> None:
        """Give a filled slot to its class."""
        self.claimed[slot] = True
        if self.keep_originals:
            self.originals[int(self.ids[slot])] = self.records[slot].clone()

    def release(self, slot: int) -> None:
        """Take a slot away from its class."""
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

    def trim(self) -> None:
        """Give up slots that hold no image. More are made when they are needed."""
        for name in COLUMNS:
            setattr(self, name, getattr(self, name)[: self.size].clone())

    def slot_of(self, identity: int) -> int:
        """Return the slot of the image with this id."""
        return int((self.ids == identity).nonzero()[0])

    def stored_since(self, stored: int) -> list[int]:
        """Return the slots filled since the store had stored `stored` images."""
        return (self.ids[: self.size] >= stored).nonzero().flatten().tolist()

    def filled(self) -> Tensor:
        """Return all filled slots."""
        return torch.arange(self.size)

    def unclaimed(self) -> Tensor:
        """Return the filled slots that no class has claimed."""
        return (~self.claimed[: self.size]).nonzero().flatten()

    def real_images(self) -> Tensor:
        """Return the unclaimed slots that hold an original image (M_O of the paper)."""
        return (~self.claimed[: self.size] & ~self.summary[: self.size]).nonzero().flatten()

    def slots_of(self, label: int) -> Tensor:
        """Return the slots that hold an image of a class."""
        return (self.labels[: self.size] == label).nonzero().flatten()

    def claimed_by(self, label: int) -> Tensor:
        """Return the slots of one class's summary (M_c of the paper)."""
        return (self.claimed & (self.labels == label)).nonzero().flatten()

    def read_original(self, slot: int) -> Tensor:
        """Return the first image of a claimed slot, if the store was told to keep it."""
        original = self.originals.get(int(self.ids[slot]))
        if original is None:
            raise InputError(f"no original is kept for slot {slot}: create the learner with keep_originals=True")
        return self.codec.decode([original], self.shape)[0]

    def check_restored(self, ctx: MemoryContext) -> None:
        held = self.labels[: self.size]
        if self.size and not 0 <= int(held.min()) <= int(held.max()) < ctx.classes:
            raise ValueError(f"the memory holds images of a class beyond the {ctx.classes} that were seen")

    def state(self) -> Tree:
        return super().state() | {name: _pack(getattr(self, name)) for name in ("records", "originals")}

    def load_state(self, tree: Tree) -> None:
        if len(tree["records"]["sizes"]) > len(tree["labels"]):
            raise ValueError(f"{len(tree['records']['sizes'])} records do not fit {len(tree['labels'])} slots")
        records, originals = (self._unpack(tree[name]) for name in ("records", "originals"))
        if isinstance(self.limit, ByteLimit):
            self._resize_columns(len(tree["labels"]))
        super().load_state(tree | {"records": records, "originals": originals})
        self.limit.check_held(self)
        self.version += 1

    def remember(self) -> Undo:
        """Remember columns and counts, and which records there are: a record is replaced, but never changed."""
        columns = {name: getattr(self, name).clone() for name in COLUMNS}
        records, originals = list(self.records), dict(self.originals)
        seen, stored = self.seen, self.stored

        def undo() -> None:
            for name, column in columns.items():
                setattr(self, name, column)
            self.records, self.originals, self.seen, self.stored = records, originals, seen, stored
            self.version += 1

        return undo

    def require_finite(self) -> None:
        super().require_finite()
        if self.codec.record_bytes(self.shape) is not None:  # compressed pixels are bytes, so always finite
            for record in (*self.records, *self.originals.values()):
                require_finite(self.codec.decode([record], self.shape), "an image in the memory")

    def _unpack(self, packed: Tree) -> list[Tensor] | dict[int, Tensor]:
        """Return the records that `_pack` packed; the first that is no image raises a ValueError."""
        values, at = [], 0
        for size in packed["sizes"]:
            record = packed["data"][at : at + size]
            if record.dtype != torch.uint8 or len(record) != size:
                raise ValueError(f"a record of {size} bytes is not there")
            self.codec.decode([record], self.shape)
            values.append(record.clone())
            at += size
        return values if packed["slots"] is None else dict(zip(packed["slots"], values, strict=True))

    def _resize_columns(self, slots: int) -> None:
        """Make as many slots; where bytes are the limit, their number is not known in advance."""
        for name, empty in COLUMNS.items():
            column = getattr(self, name)[:slots]
            added = torch.full((slots - len(column),), empty, dtype=column.dtype)
            setattr(self, name, torch.cat([column, added]))

    def _warn_of_size(self, record: Tensor) -> None:
        if isinstance(self.limit, ByteLimit) and len(record) > self.limit.bytes and not self._warned_of_size:
            self._warned_of_size = True
            _log.warning(
                "an image takes %d bytes as %s, more than the %d the memory has: it cannot be stored, and there may be "
                "more of them",
                *(len(record), self.codec.name, self.limit.bytes),
            )


def make_limit(options: Mapping[str, Any], shape: tuple[int, int, int]) -> Limit:
    """Return the limit of a memory. A limit in bytes becomes one in images if every image takes the same bytes.

    Args:
        options: memory_size, memory_bytes or total_bytes, and codec.
        shape: channels, height and width of an image.
    """
    codec, memory_bytes = parse_codec(options["codec"]), options["memory_bytes"]
    if options.get("total_bytes") is not None:
        return ByteLimit(options["total_bytes"], SLOT_BYTES)
    if memory_bytes is None:
        return SlotLimit(options["memory_size"] or 0)
    each = codec.record_bytes(shape)
    return ByteLimit(memory_bytes) if each is None or each > memory_bytes else SlotLimit(memory_bytes // each)


def make_store(options: Mapping[str, Any], shape: tuple[int, int, int]) -> Store:
    """Return an empty store.

    Args:
        options: the options of `MemoryOptions`, by name.
        shape: channels, height and width of an image.
    """
    keep_originals = options.get("keep_originals", False)
    return Store(make_limit(options, shape), shape, parse_codec(options["codec"]), keep_originals)


def _pack(records: list[Tensor] | dict[int, Tensor]) -> Tree:
    """Many small records as one tensor, so that a checkpoint stays one read."""
    slots = list(records) if isinstance(records, dict) else None
    values = list(records.values()) if isinstance(records, dict) else records
    data = torch.cat(values) if values else torch.zeros(0, dtype=torch.uint8)
    return {"slots": slots, "sizes": [len(value) for value in values], "data": data}
