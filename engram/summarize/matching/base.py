"""The interface of a matching loss, and the table of all that are known."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engram.base.errors import InputError
from engram.base.interfaces import SummarizingNet
from engram.base.naming import suggest


class MatchingLoss:
    """Says how far the summaries of a class are from its real images, as seen by the summarizing net θ.

    θ may compute in bf16. Losses are taken of `widened` outputs, in float32.
    """

    def target(self, theta: SummarizingNet, images: Tensor, label: int) -> Any:
        """Return everything that `terms` needs to know of the real images of a class, without a graph."""
        raise NotImplementedError

    def terms(
        self, theta: SummarizingNet, images: Tensor, label: int, target: Any, anchors: Tensor | None, gamma: float
    ) -> dict[str, Tensor]:
        """Return the terms of the loss by name, differentiable in the synthetic images; the loss is their sum.

        Args:
            theta: the summarizing net.
            images: the synthetic images of the class.
            label: index of the class.
            target: what `target` returned for the real images.
            anchors: θ's features of past summaries, or None where there are none.
            gamma: weight of the relation to the anchors (γ).
        """
        raise NotImplementedError


CHUNK_PIXELS = 8 * 32 * 32
"""Real images go through θ in chunks of about so many pixels: instance norm keeps images apart, so only the order of
summation changes, and activations that stay in cache make the gradient nearly twice as fast."""


def in_chunks(images: Tensor) -> tuple[Tensor, ...]:
    """Return the images in chunks that θ is fast with.

    A chunk is larger where activations take less of the cache: twice as large without gradients, for which no
    activation is kept, and twice again in bf16.
    """
    pixels = CHUNK_PIXELS
    if not torch.is_grad_enabled():
        pixels *= 4 if torch.is_autocast_enabled(images.device.type) else 2
    chunks: tuple[Tensor, ...] = images.split(max(1, pixels // (images.shape[-1] * images.shape[-2])))
    return chunks


MATCHING: dict[str, type[MatchingLoss]] = {}
"""Every matching loss by its name. An entry added here can be chosen by `summarize={"matching": name}`."""


def matching_name(name: Any) -> str:
    """Return the name of a matching loss, or raise an `InputError` if it is not known."""
    if name not in MATCHING:
        raise InputError(f"matching is {name!r}{suggest(str(name), list(MATCHING))}")
    return str(name)
