"""The second view of contrastive training as an augmentation that any scheme can train on."""

from __future__ import annotations

import torch
from torch import Tensor

from engram.augmentations.view import ViewAugmentation, augment_view
from engram.base.interfaces import Augmentation
from engram.base.settings import Share

SMALLEST_VIEW = 8
"""Least number of pixels per side of a view."""


class RandomView(Augmentation):
    """Shows every image in a random view each time it is trained on: crop, flip, color jitter and gray.

    Args:
        view: probabilities and ranges of the view.
        side: pixels per side of a view, as a share of the image's. A step takes time in proportion to its square. A
            crop shows things larger than the whole image does; a view of three quarters shows them about as large.
    """

    def __init__(self, view: ViewAugmentation = ViewAugmentation(), side: Share = 1.0) -> None:
        self.view, self.side = view, side

    def augment(self, images: Tensor, generator: torch.Generator) -> Tensor:
        return augment_view(images, self.view, generator, self.output_size(images.shape[-1]))

    def output_size(self, size: int) -> int:
        return max(SMALLEST_VIEW, round(self.side * size))
