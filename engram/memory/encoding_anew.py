"""Encode what a memory holds anew: when a shared scale becomes too small, or when smaller pictures are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engram.memory.budget import ByteLimit
from engram.memory.codecs import AutoQuality
from engram.memory.latent import Latent8

if TYPE_CHECKING:
    from engram.memory.store import Store

ENOUGH_IMAGES = 60
"""Pictures of a class that are better made smaller than fewer (docs/results.md)."""
BLOCK = 100
"""Images that are decoded at a time."""


def grow_scale(memory: Store, codec: Latent8, latents: Tensor) -> None:
    """Let the codec's scale hold these latents too. All latents that are there are encoded on the new scale."""
    held = memory.encoded_images()
    anew = codec.grown([*held, *memory.originals.values()], memory.shape, latents)
    _replace_images(memory, anew[: memory.size])
    memory.originals = dict(zip(memory.originals, anew[memory.size :], strict=True))


def lower_quality(memory: Store) -> None:
    """Lower the quality of a codec that chooses it, until each class has room for `ENOUGH_IMAGES` pictures.

    Pictures that are there are made smaller too. The room for further pictures is estimated from their mean size.
    """
    codec = memory.codec
    if not isinstance(codec, AutoQuality) or not isinstance(memory.limit, ByteLimit):
        return
    classes = len(memory.labels[: memory.size].unique())
    while memory.size and codec.can_lower and memory.capacity < ENOUGH_IMAGES * classes:
        codec.lower()
        held = memory.encoded_images()
        anew = [
            record
            for start in range(0, len(held), BLOCK)
            for record in codec.encode(codec.decode(held[start : start + BLOCK], memory.shape))
        ]
        _replace_images(memory, [min(pair, key=len) for pair in zip(anew, held, strict=True)])


def _replace_images(memory: Store, images: list[Tensor]) -> None:
    """Put other encodings in the place of those that are there. Logits stay behind them."""
    held = memory.encoded_images()
    tails = [record[len(image) :] for record, image in zip(memory.records, held, strict=True)]
    memory.records = [torch.cat(parts) for parts in zip(images, tails, strict=True)]
    memory.used = sum(map(len, memory.records))
    memory.version += 1
