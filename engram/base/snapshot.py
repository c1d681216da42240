"""A frozen copy of the net, for schemes that compare with an earlier state."""

from __future__ import annotations

import copy

import torch

from engram.base.model import LOGITS, Model, Net
from engram.base.part import Part
from engram.persistence.state import module_state, restore_module


class Snapshot(Part):
    """A frozen copy of the net as it was when `take` was called last. Kept in train mode: it uses batch statistics."""

    def __init__(self, model: Model) -> None:
        self.add_state("net", copy.deepcopy(model.net).train().requires_grad_(False), count_as="snapshots")
        self.add_state("taken", 0)
        self.net: Net
        self.taken: int
        """How often a copy was taken; before the first time the net means nothing."""

    def require_classes(self, least: int, model: Model) -> None:
        """Raise a ValueError if its logits cannot be those of an earlier state of this net with so many classes."""
        blank = torch.zeros(1, model.feature_width, device=model.device)
        outputs = [net.heads[LOGITS](blank).shape[1] for net in (self.net, model.net)]
        if self.taken < 0 or not least <= outputs[0] <= outputs[1]:
            raise ValueError(f"a previous net of {outputs[0]} outputs does not fit {least} to {outputs[1]} classes")

    def take(self, model: Model) -> None:
        restore_module(self.net, module_state(model.net))
        self.taken += 1
