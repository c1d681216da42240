"""The limit of a memory: a number of images, or a number of bytes of encoded images.

A limit answers the questions a policy has: which slot an image may take, how likely it stays, and who makes room for a
claim. So policies read the same under both limits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from engram.base.errors import InputError

if TYPE_CHECKING:
    from engram.memory.codecs import Codec
    from engram.memory.store import Store

FIRST_SLOTS = 16
"""Slots that a memory limited in bytes begins with; their number doubles when they are full."""


class Admission(Protocol):
    """Decides for each image of one batch whether a reservoir takes it."""

    def slot(self, position: int) -> int | None:
        """Return the slot for the image at this position of the batch, or None if it is left out."""

    def priority(self) -> float:
        """Return the priority the next stored image has; where bytes are short, the lowest leaves first."""


class Limit(ABC):
    """How much a memory may hold."""

    first_slots: int
    """Slots the memory is created with."""

    @abstractmethod
    def check_codec(self, codec: Codec, shape: tuple[int, int, int]) -> None:
        """Raise an `InputError` if not even one image fits."""

    @abstractmethod
    def check_held(self, memory: Store) -> None:
        """Raise a ValueError if the memory holds more than it may."""

    @abstractmethod
    def require_room(self, records: list[Tensor]) -> None:
        """Raise an `InputError` if a memory cannot hold all of these encoded images."""

    @abstractmethod
    def describe(self, memory: Store) -> str:
        """Return in words how full the memory is."""

    @abstractmethod
    def free(self, memory: Store) -> int:
        """Return how many further images fit, about."""

    @abstractmethod
    def fits(self, memory: Store, length: int) -> bool:
        """Return whether a record of this length fits beside those that are there."""

    @abstractmethod
    def holds(self, length: int) -> bool:
        """Return whether an empty memory would hold a record of this length."""

    @abstractmethod
    def has_slot(self, slot: int) -> bool:
        """Return whether a slot of this number can exist."""

    @abstractmethod
    def draw_priority(self, generator: torch.Generator, least: float = 0.0) -> float:
        """Draw the priority of an image that is stored by chance. `least` is a bound known from an earlier draw."""

    @abstractmethod
    def admission(self, memory: Store, count: int, below: int, generator: torch.Generator) -> Admission:
        """Make the reservoir's decisions for a batch of `count` images.

        Where slots are the limit, each image that finds no free slot draws an index from range(below). It replaces the
        image in the slot of that number, if the memory has one.
        """

    @abstractmethod
    def make_room(self, memory: Store, length: int, priority: float, spared: int | None) -> bool:
        """Make `length` more bytes fit, by removing unclaimed images of lower priority, or change nothing.

        The image with the id `spared` is not removed. Returns whether there is room.
        """

    @abstractmethod
    def slot_to_claim(
        self, memory: Store, length: int, label: int, owned: Counter[int], generator: torch.Generator
    ) -> int | None:
        """Return a slot that a class may claim for a record, or None. `owned` counts each class's claimed slots.

        Where every slot is claimed, classes that own most give some up, as long as they keep at least as many as the
        claimant gets; `owned` is updated.
        """

    @abstractmethod
    def owns_share(self, memory: Store, label: int, quota: int, classes: int) -> bool:
        """Return whether a class has claimed all it may: `quota` slots, or its share of the bytes."""


class SlotLimit(Limit):
    """A memory of so many images.

    Args:
        slots: images the memory holds.
    """

    def __init__(self, slots: int) -> None:
        if slots < 1:
            raise InputError(f"memory_size is {slots}: a memory needs at least one slot")
        self.slots = self.first_slots = slots

    def check_codec(self, codec: Codec, shape: tuple[int, int, int]) -> None:
        """Any image fits a slot."""

    def check_held(self, memory: Store) -> None:
        if memory.size > self.slots:
            raise ValueError(f"{memory.size} records do not fit a memory of {self.slots} images")

    def require_room(self, records: list[Tensor]) -> None:
        if len(records) > self.slots:
            raise InputError(f"{len(records)} images do not fit a memory of {self.slots}: give it more")

    def describe(self, memory: Store) -> str:
        return f"{memory.size} of {self.slots} slots filled"

    def free(self, memory: Store) -> int:
        return self.slots - memory.size

    def fits(self, memory: Store, length: int) -> bool:
        return memory.size < self.slots

    def holds(self, length: int) -> bool:
        return True

    def has_slot(self, slot: int) -> bool:
        return slot < self.slots

    def draw_priority(self, generator: torch.Generator, least: float = 0.0) -> float:
        return 1.0

    def admission(self, memory: Store, count: int, below: int, generator: torch.Generator) -> Admission:
        return _SlotAdmission(memory, torch.randint(below, (count,), generator=generator).tolist())

    def make_room(self, memory: Store, length: int, priority: float, spared: int | None) -> bool:
        return True

    def slot_to_claim(
        self, memory: Store, length: int, label: int, owned: Counter[int], generator: torch.Generator
    ) -> int | None:
        if memory.free:
            return memory.size
        unclaimed = memory.unclaimed()
        if len(unclaimed):
            return int(unclaimed[torch.randint(len(unclaimed), (1,), generator=generator)])
        richest = _richest(owned)
        if owned[richest] < owned[label] + 2:
            return None
        slot = int(memory.claimed_by(richest)[-1])
        memory.release(slot)
        owned[richest] -= 1
        return slot

    def owns_share(self, memory: Store, label: int, quota: int, classes: int) -> bool:
        return len(memory.claimed_by(label)) >= quota


class ByteLimit(Limit):
    """A memory of so many bytes of encoded images; images come and go by size.

    Args:
        bytes: bytes that all encoded images together may take.
        slot_bytes: bytes that each image costs besides its own.
    """

    first_slots = FIRST_SLOTS

    def __init__(self, bytes: int, slot_bytes: int = 0) -> None:
        self.bytes, self.slot_bytes = bytes, slot_bytes

    def charge(self, length: int) -> int:
        """Return what a record of this length takes of the limit."""
        return length + self.slot_bytes

    def taken(self, memory: Store) -> int:
        """Return what the images in memory take of the limit."""
        return memory.used + self.slot_bytes * memory.size

    def shrink(self, memory: Store) -> None:
        """Remove images until the rest fits: unclaimed ones of low priority first, then of the class that owns most."""
        while self.taken(memory) > self.bytes:
            unclaimed = memory.unclaimed()
            if len(unclaimed):
                memory.remove(int(unclaimed[memory.priority[unclaimed].argmin()]))
            else:
                richest = _richest(Counter(memory.labels[: memory.size].tolist()))
                memory.remove(int(memory.claimed_by(richest)[-1]))

    def check_codec(self, codec: Codec, shape: tuple[int, int, int]) -> None:
        blank = self.charge(len(codec.encode(torch.zeros(1, *shape))[0]))
        if blank > self.bytes:
            raise InputError(
                f"memory_bytes is {self.bytes}: not even a blank image, {blank} bytes as {codec.name}, fits"
            )

    def check_held(self, memory: Store) -> None:
        if self.taken(memory) > self.bytes:
            raise ValueError(f"{self.taken(memory)} bytes of images do not fit a memory of {self.bytes} bytes")

    def require_room(self, records: list[Tensor]) -> None:
        if (size := sum(self.charge(len(record)) for record in records)) > self.bytes:
            raise InputError(f"{size} bytes of images do not fit a memory of {self.bytes} bytes: give it more")

    def describe(self, memory: Store) -> str:
        return f"{memory.size} images in {memory.used:,} of {self.bytes:,} bytes"

    def free(self, memory: Store) -> int:
        used = self.taken(memory)
        typical = used / memory.size if memory.size else self.charge(memory.pixels)
        return max(int((self.bytes - used) // typical), 0 if memory.size else 1)

    def fits(self, memory: Store, length: int) -> bool:
        return self.taken(memory) + self.charge(length) <= self.bytes

    def holds(self, length: int) -> bool:
        return self.charge(length) <= self.bytes

    def has_slot(self, slot: int) -> bool:
        return True

    def draw_priority(self, generator: torch.Generator, least: float = 0.0) -> float:
        return least + (1 - least) * float(torch.rand(1, generator=generator))

    def admission(self, memory: Store, count: int, below: int, generator: torch.Generator) -> Admission:
        return _ByteAdmission(memory, self, generator)

    def make_room(self, memory: Store, length: int, priority: float, spared: int | None) -> bool:
        missing = (self.charge(length) if spared is None else length) - (self.bytes - self.taken(memory))
        leaving: list[int] = []
        for slot in memory.priority[: memory.size].argsort(stable=True).tolist():
            if missing <= 0:
                break
            if not memory.claimed[slot] and int(memory.ids[slot]) != spared and memory.priority[slot] < priority:
                leaving.append(int(memory.ids[slot]))
                missing -= self.charge(len(memory.records[slot]))
        if missing > 0:
            return False
        for identity in leaving:
            memory.remove(memory.slot_of(identity))
        return True

    def slot_to_claim(
        self, memory: Store, length: int, label: int, owned: Counter[int], generator: torch.Generator
    ) -> int | None:
        left, leaving = owned.copy(), []
        missing = self._missing_bytes(memory, length)
        while missing > 0:
            richest = _richest(left) if left else label
            if left[richest] < owned[label] + 2:
                return None
            slot = int(memory.claimed_by(richest)[left[richest] - 1])
            leaving.append(int(memory.ids[slot]))
            missing -= self.charge(len(memory.records[slot]))
            left[richest] -= 1
        for identity in leaving:
            memory.remove(memory.slot_of(identity))
        owned.clear()
        owned.update(left)
        return memory.size

    def owns_share(self, memory: Store, label: int, quota: int, classes: int) -> bool:
        own = [self.charge(len(memory.records[slot])) for slot in memory.claimed_by(label).tolist()]
        if len(own) >= quota or not own:
            return len(own) >= quota
        return sum(own) + sum(own) / len(own) > self.bytes / classes

    def _missing_bytes(self, memory: Store, length: int) -> int:
        """Return the bytes that claimed images would have to give up for a record if all unclaimed ones left."""
        claimed = memory.claimed[: memory.size].nonzero().flatten().tolist()
        kept = sum(self.charge(len(memory.records[slot])) for slot in claimed)
        return max(0, kept + self.charge(length) - self.bytes)


class _SlotAdmission:
    """Free slots first; then the slot that was drawn, unless it is claimed or beyond the memory."""

    def __init__(self, memory: Store, drawn: list[int]) -> None:
        self.memory, self.drawn = memory, drawn

    def slot(self, position: int) -> int | None:
        memory = self.memory
        slot = memory.size if memory.free else self.drawn[position]
        return slot if slot < memory.capacity and not memory.claimed[slot] else None

    def priority(self) -> float:
        return 1.0


class _ByteAdmission:
    """Every image is tried; its priority decides whether it stays."""

    def __init__(self, memory: Store, limit: ByteLimit, generator: torch.Generator) -> None:
        self.memory, self.limit, self.generator = memory, limit, generator

    def slot(self, position: int) -> int | None:
        return self.memory.size

    def priority(self) -> float:
        return self.limit.draw_priority(self.generator)


def _richest(owned: Counter[int]) -> int:
    """Return the class that owns most slots, the latest of several."""
    return max(owned, key=lambda owner: (owned[owner], owner))
