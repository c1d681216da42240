"""The second view of contrastive training as an augmentation that any scheme can train on."""

from __future__ import annotations

import torch
from torch import Tensor

from engram.augmentations.view import ViewAugmentation, augment_view
from engram.base.interfaces import Augmentation


class RandomView(Augmentation):
    """Shows every image in a random view each time it is trained on: crop, flip, color jitter and gray.

    Args:
        view: probabilities and ranges of the view.
    """

    def __init__(self, view: ViewAugmentation = ViewAugmentation()) -> None:
        self.view = view

    def augment(self, images: Tensor, generator: torch.Generator) -> Tensor:
        return augment_view(images, self.view, generator)
