"""The memory: slots of encoded images with their labels, and which class owns them."""

from __future__ import annotations

import copy
import logging
import math

import torch
from torch import Tensor

from engram.base.batch import Batch
from engram.base.context import MemoryContext
from engram.base.errors import InputError
from engram.base.part import Part
from engram.base.undo import Undo
from engram.memory.budget import FIRST_SLOTS, ByteLimit, Limit, SlotLimit
from engram.memory.codecs import Codec, Float32
from engram.memory.encoding_anew import grow_scale
from engram.memory.latent import Latent8
from engram.memory.logits import add_logits, as_rows, split_record
from engram.memory.packing import pack, unpack
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
        keeps_logits: keep the logits that come with images, in their records.
        latents: it holds outputs of a frozen net instead of images, so nobody can look at them.
    """

    def __init__(
        self,
        limit: Limit | int,
        shape: tuple[int, int, int],
        codec: Codec | None = None,
        keep_originals: bool = False,
        keeps_logits: bool = False,
        latents: bool = False,
    ) -> None:
        self.limit = SlotLimit(limit) if isinstance(limit, int) else limit
        self.codec: Codec = codec or Float32()
        self.latents = latents
        if isinstance(self.codec, Latent8):
            self.codec.begin(shape[0])
            self.add_state("scale", self.codec)
        elif isinstance(self.codec, Part):
            self.add_state("codec", self.codec)
        self.limit.check_codec(self.codec, shape)
        self.shape, self.pixels = shape, math.prod(shape)
        self.keep_originals, self.keeps_logits = keep_originals, keeps_logits
        self.version = 0
        self.used: int = 0
        """Bytes of the encoded images."""
        self._warned_of_size = False
        self.add_state("records", [], count_as="images", on_cpu=True)
        self.add_state("originals", {}, count_as="originals", on_cpu=True)
        for name, empty in COLUMNS.items():
            column = torch.full((self.limit.first_slots,), empty)
            line = "labels" if name == "labels" else "bookkeeping"
            self.add_state(name, column, count_as=line, on_cpu=True, infinite=name in INFINITE)
        self.add_state("seen", 0)
        self.add_state("stored", 0)
        if keeps_logits:
            self.add_state("keeps_logits", True)
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
        """Return the decoded images and labels of these slots, in this order, with their logits if it keeps them."""
        if not len(slots):
            return Batch(torch.zeros(0, *self.shape, device=self.device), slots.to(self.device))
        images, logits = zip(*(self._parts(self.records[slot]) for slot in slots.tolist()), strict=True)
        rows = as_rows(logits).to(self.device) if self.keeps_logits else None
        x = self.codec.decode(images, self.shape).to(self.device)
        return Batch(x, self.labels[slots].to(self.device), logits=rows)

    def encoded_images(self) -> list[Tensor]:
        """Return every image as its codec encoded it, without logits."""
        return [self._parts(record)[0] for record in self.records]

    def put(self, slot: int, batch: Batch, position: int, priority: float = 1.0) -> int | None:
        """Store one image of a batch and return its slot then, or None if there was no room.

        Args:
            slot: a filled slot that is not claimed, whose image is replaced, or the next free one.
            batch: images (N,C,H,W), their labels, and logits if this memory is to keep them.
            position: which image of the batch.
            priority: where bytes are the limit, unclaimed images of lower priority make room for it.
        """
        return self.put_record(slot, self.record_of(batch, position), int(batch.y[position]), priority)

    def record_of(self, batch: Batch, position: int) -> Tensor:
        """Return the record of one image of a batch."""
        records = self.encode(batch.x[position : position + 1])
        return self.completed(records, None if batch.logits is None else batch.logits[position : position + 1])[0]

    def completed(self, records: list[Tensor], logits: Tensor | None = None) -> list[Tensor]:
        """Return the records of encoded images as this memory holds them: with logits (N,classes), if it keeps them."""
        if not self.keeps_logits:
            return records
        rows = [None] * len(records) if logits is None else logits
        return [add_logits(record, row) for record, row in zip(records, rows, strict=True)]

    def encode(self, images: Tensor) -> list[Tensor]:
        """Return images as the codec encodes them. If its scale is too small for them, all records are made anew."""
        if isinstance(self.codec, Latent8) and not self.codec.holds(images):
            grow_scale(self, self.codec, images)
        return self.codec.encode(images)

    def put_record(self, slot: int, record: Tensor, label: int, priority: float = 1.0) -> int | None:
        """Store an image that is encoded already; otherwise like `put`."""
        if slot > self.size or not self.limit.has_slot(slot):
            raise IndexError(f"slot {slot} is neither filled nor the next free one ({self.size} are filled)")
        if slot < self.size and self.claimed[slot]:
            raise ValueError(f"slot {slot} is claimed by class {int(self.labels[slot])}: release it first")
        replaced = int(self.ids[slot]) if slot < self.size else None
        more = len(record) - (len(self.records[slot]) if replaced is not None else 0)
        if not self.limit.make_room(self, more, priority, replaced):
            self.warn_of_size(len(record))
            return None
        slot = self.size if replaced is None else self.slot_of(replaced)
        if replaced is None:
            if slot == len(self.labels):
                self._resize_columns(max(2 * slot, FIRST_SLOTS))
            self.records.append(record)
        else:
            self.used -= len(self.records[slot])
            self.records[slot] = record
        self.used += len(record)
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
        records = self.completed(self.encode(images))
        for identity, record in zip(self.ids[slots].tolist(), records, strict=True):
            slot = self.slot_of(identity)
            if self.limit.make_room(self, len(record) - len(self.records[slot]), math.inf, identity):
                slot = self.slot_of(identity)
                self.used += len(record) - len(self.records[slot])
                self.records[slot] = record
                self.summary[slot] = True
        self.version += 1

    def claim(self, slot: int) -> None:
        """Give a filled slot to its class."""
        self.claimed[slot] = True
        if self.keep_originals:
            self.originals[int(self.ids[slot])] = self._parts(self.records[slot])[0].clone()

    def release(self, slot: int) -> None:
        """Take a slot away from its class."""
        self.claimed[slot] = False
        self.originals.pop(int(self.ids[slot]), None)

    def remove(self, slot: int) -> None:
        """Empty a slot; the last image moves into it."""
        last = self.size - 1
        self.release(slot)
        self.used -= len(self.records[slot])
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
        self.check_logits(ctx.classes_total)

    def check_logits(self, classes: int) -> None:
        """Raise a ValueError if an image has logits of more classes than there are."""
        most = max((len(self._parts(record)[1]) for record in self.records), default=0)
        if most > classes:
            raise ValueError(f"the memory holds logits of {most} classes, and there are {classes}")

    def state(self) -> Tree:
        return super().state() | {name: pack(getattr(self, name)) for name in ("records", "originals")}

    def load_state(self, tree: Tree) -> None:
        if len(tree["records"]["sizes"]) > len(tree["labels"]):
            raise ValueError(f"{len(tree['records']['sizes'])} records do not fit {len(tree['labels'])} slots")
        if tree.get("keeps_logits", False) is not self.keeps_logits:
            raise ValueError("it was not saved by a memory that keeps the same of each image")
        records = unpack(tree["records"], lambda record: self._require_image(self._parts(record)[0]))
        originals = unpack(tree["originals"], self._require_image)
        if isinstance(self.limit, ByteLimit):
            self._resize_columns(len(tree["labels"]))
        super().load_state(tree | {"records": records, "originals": originals})
        self.used = sum(map(len, self.records))
        self.limit.check_held(self)
        self.version += 1

    def remember(self) -> Undo:
        """Remember columns and counts, and which records there are: a record is replaced, but never changed."""
        columns = {name: getattr(self, name).clone() for name in COLUMNS}
        records, originals = list(self.records), dict(self.originals)
        seen, stored, used, limit = self.seen, self.stored, self.used, copy.copy(self.limit)
        undo_codec = self.codec.remember() if isinstance(self.codec, Part) else None

        def undo() -> None:
            if undo_codec:
                undo_codec()
            for name, column in columns.items():
                setattr(self, name, column)
            self.records, self.originals = records, originals
            self.seen, self.stored, self.used, self.limit = seen, stored, used, limit
            self.version += 1

        return undo

    def require_finite(self) -> None:
        super().require_finite()
        if self.codec.record_bytes(self.shape) is not None:  # compressed pixels are bytes, so always finite
            for record in (*self.encoded_images(), *self.originals.values()):
                require_finite(self.codec.decode([record], self.shape), "an image in the memory")

    def _parts(self, record: Tensor) -> tuple[Tensor, Tensor]:
        """Return the encoded image of a record and its logits, none if this memory keeps none."""
        return split_record(record) if self.keeps_logits else (record, torch.zeros(0))

    def _require_image(self, record: Tensor) -> None:
        """Raise a ValueError if a record is no image."""
        self.codec.decode([record], self.shape)

    def _resize_columns(self, slots: int) -> None:
        """Make as many slots; where bytes are the limit, their number is not known in advance."""
        for name, empty in COLUMNS.items():
            column = getattr(self, name)[:slots]
            added = torch.full((slots - len(column),), empty, dtype=column.dtype)
            setattr(self, name, torch.cat([column, added]))

    def warn_of_size(self, length: int) -> None:
        """Say once that a record of this length cannot be stored, if not even an empty memory would hold it."""
        if isinstance(self.limit, ByteLimit) and not self.limit.holds(length) and not self._warned_of_size:
            self._warned_of_size = True
            _log.warning(
                "an image takes %d bytes as %s, more than the %d the memory has: it cannot be stored, and there may be "
                "more of them",
                *(self.limit.charge(length), self.codec.name, self.limit.bytes),
            )
