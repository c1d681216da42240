"""The most recent real images of each current class, kept for summarizing only."""

from __future__ import annotations

import torch
from torch import Tensor

from engram.base.batch import Batch, as_float
from engram.base.part import Part


class ClassQueue(Part):
    """Keeps the last images of each current class, in a ring.

    If there are more than `max_classes` classes, the least recently seen one leaves.

    Images that came as uint8 are kept as uint8.

    Args:
        capacity: number of images kept of each class; 0 keeps the whole batch at hand, until the queue is cleared.
        max_classes: number of classes kept.
    """

    def __init__(self, capacity: int, max_classes: int) -> None:
        self.capacity, self.max_classes = capacity, max_classes
        self.add_state("images", {}, count_as="queue", on_cpu=True)
        self.add_state("pushed", {})
        self.images: dict[int, Tensor]
        """Images by class, the least recently seen class first; within a class in no particular order."""
        self.pushed: dict[int, int]
        """Number of images ever pushed, by class."""
        self.lost = 0
        """Number of images that left with their class since the queue was last cleared."""

    @property
    def classes(self) -> list[int]:
        return sorted(self.images)

    def count(self, label: int) -> int:
        return len(self.images[label])

    def most_bytes(self) -> int:
        """Return the bytes that the queues of the classes in it take when they are full."""
        return sum(self.capacity * images[:1].nbytes for images in self.images.values())

    def push(self, batch: Batch) -> None:
        pixels = (batch.x if batch.raw is None else batch.raw).cpu()
        for label in dict.fromkeys(batch.y.tolist()):
            self._push_class(label, pixels[(batch.y == label).cpu()])
        while len(self.images) > self.max_classes:
            oldest = next(iter(self.images))
            self.lost += len(self.images[oldest])
            del self.images[oldest], self.pushed[oldest]

    def _push_class(self, label: int, new: Tensor) -> None:
        ring, pushed = self.images.pop(label, new[:0]), self.pushed.pop(label, 0)
        if ring.dtype != new.dtype:
            ring, new = as_float(ring), as_float(new)
        room = (self.capacity or len(new)) - len(ring)
        ring = torch.cat([ring, new[:room]])
        overflow = new[room:]
        for image, position in zip(overflow, range(pushed + len(new) - len(overflow), pushed + len(new)), strict=True):
            ring[position % self.capacity] = image
        self.images[label], self.pushed[label] = ring, pushed + len(new)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise a ValueError if a restored queue does not fit images of this shape."""
        for label, images in self.images.items():
            fits = images.dtype in (torch.uint8, torch.float32) and images.shape[1:] == shape
            if not fits or len(images) > self.capacity or not isinstance(self.pushed.get(label), int):
                raise ValueError(f"the queue of class {label} holds {images.dtype} {tuple(images.shape)}")

    def read(self, label: int, chosen: Tensor | None = None) -> Tensor:
        """Return the images of a class, or those at the chosen places."""
        images = self.images[label]
        return as_float(images if chosen is None else images[chosen])

    def clear(self) -> None:
        self.lost = 0
        self.images.clear()
        self.pushed.clear()
