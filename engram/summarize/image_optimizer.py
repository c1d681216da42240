"""The optimizer of the summaries: SGD with momentum, shared by all current classes and stepped once per class.

As published, one optimizer holds the images of every current class and is stepped after each class's loss. A step that
brings a class no gradient still moves it along its momentum: over a round of n classes the one visited at position p
drifts p steps, takes its own, is written to the memory, and drifts n−1−p more. `drift` does many such steps at once.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

PUBLISHED_RATES = {1: 2e-4, 5: 1e-3, 10: 4e-3}
"""Learning rates of the paper by images a class."""


def image_learning_rate(slots_per_class: int) -> float:
    """Return the paper's rate at k = 1, 5, 10; log-interpolated between them, and the nearest one outside."""
    known = sorted(PUBLISHED_RATES)
    if slots_per_class <= known[0]:
        return PUBLISHED_RATES[known[0]]
    for low, high in itertools.pairwise(known):
        if slots_per_class <= high:
            share = math.log(slots_per_class / low) / math.log(high / low)
            return float(PUBLISHED_RATES[low] * (PUBLISHED_RATES[high] / PUBLISHED_RATES[low]) ** share)
    return PUBLISHED_RATES[known[-1]]


@torch.no_grad()
def drift(image: Tensor, velocity: Tensor, steps: int, learning_rate: float, momentum: float) -> None:
    """Do `steps` SGD steps without gradient, in place: velocity decays, the image moves by the geometric sum."""
    decay = momentum**steps
    distance = momentum * (1 - decay) / (1 - momentum)
    image.sub_(velocity, alpha=learning_rate * distance)
    velocity.mul_(decay)


@torch.no_grad()
def step(image: Tensor, velocity: Tensor, gradient: Tensor, learning_rate: float, momentum: float) -> None:
    """Do one SGD step, in place."""
    velocity.mul_(momentum).add_(gradient)
    image.sub_(velocity, alpha=learning_rate)
