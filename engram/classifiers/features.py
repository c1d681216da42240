"""The features that a learner answers from."""

from __future__ import annotations

import torch
from torch import Tensor

from engram.base.model import Model

EVALUATION_BATCH = 128


def in_batches(x: Tensor) -> tuple[Tensor, ...]:
    """Return a tensor split into batches along its first dimension, for what needs no gradient."""
    parts: tuple[Tensor, ...] = x.split(EVALUATION_BATCH)
    return parts


def answering_features(x: Tensor, model: Model, mirror: bool) -> Tensor:
    """Return the features of images (N,D) in eval mode, without gradients.

    Args:
        x: images (N,C,H,W).
        model: the net.
        mirror: return the mean of an image's features and those of its mirror image.
    """
    with model.evaluating():
        return torch.cat([_features(part, model, mirror) for part in in_batches(x)])


def _features(x: Tensor, model: Model, mirror: bool) -> Tensor:
    return (model.features(x) + model.features(x.flip(-1))) / 2 if mirror else model.features(x)
