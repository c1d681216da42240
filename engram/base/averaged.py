"""An exponential moving average of the net: θ̄ ← d θ̄ + (1 − d) θ after every step, batch-norm statistics included.

Early steps forget faster, d = min(decay, (1 + n) / (10 + n)) after n steps, so that the average leaves the initial
weights behind. It only watches: training is the same with and without it.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from engram.base.model import Model, Net


class AveragedModel(Model):
    """The average of a model's net over its training steps, to answer from.

    Args:
        model: the model that is trained.
        decay: share of the average that each step keeps.
    """

    def __init__(self, model: Model, decay: float) -> None:
        self.feature_width, self.decay, self.version = model.feature_width, decay, 0
        self.to_device(model.device)
        self.add_state("net", copy.deepcopy(model.net).eval().requires_grad_(False), count_as="averaged")
        self.add_state("steps", 0)
        self.net: Net
        self.steps: int

    @torch.no_grad()
    def follow(self, model: Model) -> None:
        """Take in the weights and statistics that one training step has led to."""
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        own, current = self.net.state_dict(), model.net.state_dict()
        floats = [name for name, tensor in own.items() if tensor.is_floating_point()]
        averages: list[Tensor] = [own[name] for name in floats]
        torch._foreach_lerp_(averages, [current[name] for name in floats], 1 - decay)
        for name in own.keys() - set(floats):
            own[name].copy_(current[name])
        self.steps += 1
        self.version += 1
