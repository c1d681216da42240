"""The ids of batches that were accepted, so that a batch sent twice is learned once."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor

MOST_IDS = 100_000
"""Ids that are kept; of more, the oldest are forgotten."""
DIGEST = 16
"""Bytes kept of an id, and as many of the content it came with."""


class SeenIds:
    """The newest ids, each with a hash of the batch and the position at which the batch is learned."""

    def __init__(self, most: int = MOST_IDS) -> None:
        self.most = most
        self._seen: OrderedDict[bytes, tuple[bytes, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def find(self, batch_id: str) -> tuple[bytes, int] | None:
        """Return the hash of the content that came with an id, and its position; None if the id is new."""
        return self._seen.get(digest(batch_id.encode()))

    def add(self, batch_id: str, content: bytes, position: int) -> None:
        """Keep an id, and forget the oldest if there are too many."""
        self._seen[digest(batch_id.encode())] = content, position
        while len(self._seen) > self.most:
            self._seen.popitem(last=False)

    def to_tree(self, position: int) -> dict[str, Tensor]:
        """Return the ids of batches up to a position as tensors, oldest first; those after it are in the journal."""
        kept = [(key + content, place) for key, (content, place) in self._seen.items() if place <= position]
        joined = bytearray(b"".join(key for key, _ in kept))
        hashes = torch.frombuffer(joined, dtype=torch.uint8) if joined else torch.zeros(0, dtype=torch.uint8)
        positions = torch.tensor([place for _, place in kept], dtype=torch.int64)
        return {"hashes": hashes.view(-1, 2 * DIGEST), "positions": positions}

    @classmethod
    def from_tree(cls, tree: Any, most: int = MOST_IDS) -> SeenIds:
        """Return the ids that `to_tree` gave."""
        found = cls(most)
        for row, position in zip(tree["hashes"].numpy(), tree["positions"].tolist(), strict=True):
            found._seen[row[:DIGEST].tobytes()] = row[DIGEST:].tobytes(), position
        return found


def digest(content: bytes) -> bytes:
    """Return a short hash. Nobody can find two contents with the same one."""
    return hashlib.blake2b(content, digest_size=DIGEST).digest()
