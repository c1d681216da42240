"""The memory: K slots of encoded images with their labels, and who may change them."""

from __future__ import annotations

import torch
from torch import Tensor

from engram.core import Batch, Context, InputError, Part
from engram.memory.codec import Codec, Float32
from engram.state import Tree


class Store(Part):
    """Slots are filled in order and never emptied; `size` of them hold an image.

    A *claimed* slot belongs to its class: a policy leaves it alone and only summarizing rewrites it. A *summary* is a
    slot that summarizing has rewritten. With `keep_originals` the first image of each claimed slot is kept beside it,
    to be looked at (it costs its bytes, and nothing learns from it).
    """

    def __init__(
        self,
        capacity: int,
        shape: tuple[int, int, int],
        codec: Codec | None = None,
        device: torch.device | None = None,
        keep_originals: bool = False,
    ) -> None:
        if capacity < 1:
            raise InputError(f"memory_size is {capacity}: a memory needs at least one slot")
        self.capacity, self.shape = capacity, shape
        self.codec: Codec = codec or Float32()
        self.device = device or torch.device("cpu")
        self.keep_originals = keep_originals
        self.version = 0
        self.add_state("records", [], count_as="images")
        self.add_state("originals", {}, count_as="originals")
        self.add_state("labels", torch.full((capacity,), -1), count_as="labels")
        self.add_state("claimed", torch.zeros(capacity, dtype=torch.bool))
        self.add_state("summary", torch.zeros(capacity, dtype=torch.bool))
        self.add_state("seen", 0)
        self.records: list[Tensor]
        self.originals: dict[int, Tensor]
        self.labels: Tensor
        self.claimed: Tensor
        self.summary: Tensor
        self.seen: int

    @property
    def size(self) -> int:
        return len(self.records)

    @property
    def free(self) -> int:
        return self.capacity - self.size

    def read(self, slots: Tensor) -> Batch:
        """Decoded images and labels of these slots, in this order."""
        if not len(slots):
            return Batch(torch.zeros(0, *self.shape, device=self.device), slots.to(self.device))
        records = [self.records[slot] for slot in slots.tolist()]
        return Batch(self.codec.decode(records, self.shape).to(self.device), self.labels[slots].to(self.device))

    def put(self, slot: int, image: Tensor, label: int) -> None:
        """Store one image; `slot` is filled, unclaimed, or the next free one."""
        if slot > self.size or slot >= self.capacity:
            raise IndexError(f"slot {slot} is neither filled nor the next free one ({self.size} of {self.capacity})")
        if self.claimed[slot]:
            raise ValueError(f"slot {slot} is claimed by class {int(self.labels[slot])}: release it first")
        record = self.codec.encode(image[None])[0]
        if slot == self.size:
            self.records.append(record)
        else:
            self.records[slot] = record
        self.labels[slot] = label
        self.summary[slot] = False
        self.version += 1

    def rewrite(self, slots: Tensor, images: Tensor) -> None:
        """Replace the images of claimed slots by summaries; labels stay."""
        for slot, record in zip(slots.tolist(), self.codec.encode(images), strict=True):
            self.records[slot] = record
        self.summary[slots] = True
        self.version += 1

    def claim(self, slot: int) -> None:
        """Give a filled slot to its class for good."""
        self.claimed[slot] = True
        if self.keep_originals:
            self.originals[slot] = self.records[slot].clone()

    def release(self, slot: int) -> None:
        self.claimed[slot] = False
        self.originals.pop(slot, None)

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

    def read_original(self, slot: int) -> Tensor:
        """The first image of a claimed slot, if the store was told to keep it."""
        if slot not in self.originals:
            raise InputError(f"no original is kept for slot {slot}: create the learner with keep_originals=True")
        return self.codec.decode([self.originals[slot]], self.shape)[0]

    def check_restored(self, ctx: Context) -> None:
        held = self.labels[: self.size]
        if self.size and not 0 <= int(held.min()) <= int(held.max()) < ctx.classes:
            raise ValueError(f"the memory holds images of a class beyond the {ctx.classes} that were seen")

    def state(self) -> Tree:
        return super().state() | {name: _pack(getattr(self, name)) for name in ("records", "originals")}

    def load_state(self, tree: Tree) -> None:
        super().load_state(tree | {name: _unpack(tree[name]) for name in ("records", "originals")})
        records = [*self.records, *self.originals.values()]
        if len(self.records) > self.capacity or any(record.dtype != torch.uint8 for record in records):
            raise ValueError(f"{len(self.records)} records do not fit a memory of {self.capacity} images")
        for record in records:
            self.codec.decode([record], self.shape)
        self.version += 1


def _pack(records: list[Tensor] | dict[int, Tensor]) -> Tree:
    """Many small records as one tensor, so that a checkpoint stays one read."""
    slots = list(records) if isinstance(records, dict) else None
    values = list(records.values()) if isinstance(records, dict) else records
    data = torch.cat(values) if values else torch.zeros(0, dtype=torch.uint8)
    return {"slots": slots, "sizes": [len(value) for value in values], "data": data}


def _unpack(packed: Tree) -> list[Tensor] | dict[int, Tensor]:
    values = [value.clone() for value in packed["data"].split(packed["sizes"])] if packed["sizes"] else []
    return values if packed["slots"] is None else dict(zip(packed["slots"], values, strict=True))
