"""A memory in which every class has about as many images as any other: class-balancing reservoir sampling
(Chrysakis & Moens, 2020).

If the memory is full, an image of a class that is not the largest replaces a random image of the largest class. An
image of the largest class is stored with probability m/n, in place of a random one of its own class; m of its images
are in memory, n were seen. So what is held of a class is a uniform sample of its images.
"""

from __future__ import annotations

import torch

from engram.base.batch import Batch
from engram.base.context import MemoryContext
from engram.base.interfaces import MemoryPolicy, StoreReport
from engram.memory.store import Store


class Balanced(MemoryPolicy):
    """Keeps classes of equal size, whatever arrives. Where bytes are the limit, as many images leave as needed."""

    needs = frozenset({"replay"})

    def __init__(self) -> None:
        self.add_state("seen_of_class", {})
        self.seen_of_class: dict[int, int]
        """Number of images seen, by class."""

    def check_restored(self, ctx: MemoryContext) -> None:
        for label, seen in self.seen_of_class.items():
            if not isinstance(seen, int) or seen < 1 or not 0 <= label < ctx.classes:
                raise ValueError(f"{seen!r} images of class {label} cannot have been seen")

    def after_adopting(self, memory: Store) -> None:
        """Count what was seen of each class in proportion to what is held of it."""
        held = memory.labels[: memory.size].bincount().tolist()
        self.seen_of_class = {
            label: max(count, round(memory.seen * count / memory.size)) for label, count in enumerate(held) if count
        }

    def store(self, stream: Batch, ctx: MemoryContext) -> StoreReport:
        memory, before = ctx.memory, ctx.memory.stored
        for position, label in enumerate(stream.y.tolist()):
            self.seen_of_class[label] = self.seen_of_class.get(label, 0) + 1
            if self._wanted(memory, label, ctx.rng["memory"]):
                record = memory.record_of(stream, position)
                if _make_room(memory, len(record), label, ctx.rng["memory"]):
                    memory.put_record(memory.size, record, label)
            memory.seen += 1
        return StoreReport(memory.stored_since(before))

    def _wanted(self, memory: Store, label: int, generator: torch.Generator) -> bool:
        """Decide whether an image is stored if it fits. This comes first because encoding takes time."""
        if not memory.has_filled or _largest_class(memory, label) != label:
            return True
        kept = len(memory.slots_of(label)) / self.seen_of_class[label]
        return float(torch.rand(1, generator=generator)) < kept


def _make_room(memory: Store, length: int, label: int, generator: torch.Generator) -> bool:
    """Remove random images of the largest class until a record of this length fits; return whether it can."""
    if not memory.limit.holds(length):
        memory.warn_of_size(length)
        return False
    while not memory.limit.fits(memory, length):
        slots = memory.slots_of(_largest_class(memory, label))
        memory.remove(int(slots[torch.randint(len(slots), (1,), generator=generator)]))
    return True


def _largest_class(memory: Store, preferred: int) -> int:
    """Return the class with most images in memory: the preferred one if it is among several."""
    counts = memory.labels[: memory.size].bincount(minlength=preferred + 1)
    return preferred if counts[preferred] == counts.max() else int(counts.argmax())
