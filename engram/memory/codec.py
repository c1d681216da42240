"""How an image becomes bytes in the memory and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class Codec(Protocol):
    """Encodes images into byte records (1-D uint8 tensors, one an image, of any length) and decodes them."""

    name: str

    def encode(self, images: Tensor) -> list[Tensor]: ...

    def decode(self, records: Sequence[Tensor], shape: tuple[int, int, int]) -> Tensor: ...


class Float32:
    """The paper's: pixels as they are, neither clamped nor quantised."""

    name = "float32"

    def encode(self, images: Tensor) -> list[Tensor]:
        return [image.contiguous().view(-1).view(torch.uint8).clone() for image in images.detach().float().cpu()]

    def decode(self, records: Sequence[Tensor], shape: tuple[int, int, int]) -> Tensor:
        return torch.stack(list(records)).view(torch.float32).view(-1, *shape)


CODECS: dict[str, type[Codec]] = {"float32": Float32}
"""Codecs by name."""
