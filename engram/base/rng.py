"""Named random generators."""

from __future__ import annotations

import hashlib
from collections import Counter

import torch

from engram.base.part import Part
from engram.base.undo import Undo
from engram.persistence.state import Tree, tree_bytes

MOST_GENERATORS = 1000
"""Most generators that a restored state may have; each takes five kilobytes."""


class Randomness(Part):
    """Random generators by name, each seeded by (seed, name).

    No part disturbs the draws of another, and the global generators are neither read nor changed. All generators live
    on the CPU, so that every device sees the same draws.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._generators: dict[str, torch.Generator] = {}

    def __getitem__(self, name: str) -> torch.Generator:
        if name not in self._generators:
            digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
            generator = torch.Generator()
            generator.manual_seed(int.from_bytes(digest[:8], "little") >> 1)
            self._generators[name] = generator
        return self._generators[name]

    def state(self) -> Tree:
        return {name: generator.get_state() for name, generator in self._generators.items()}

    def load_state(self, tree: Tree) -> None:
        if len(tree) > MOST_GENERATORS:
            raise ValueError(f"it has {len(tree):,} random generators, more than {MOST_GENERATORS:,}")
        for name, saved in tree.items():
            self[name].set_state(saved)

    def remember(self) -> Undo:
        saved = self.state()

        def undo() -> None:
            self._generators = {name: self._generators[name] for name in saved}
            self.load_state(saved)

        return undo

    def footprint(self) -> Counter[str]:
        return Counter({"bookkeeping": tree_bytes(self.state())})


def twin_of(generator: torch.Generator) -> torch.Generator:
    """Return a generator that draws what this one will draw, and leaves it alone."""
    twin = torch.Generator()
    twin.set_state(generator.get_state())
    return twin
