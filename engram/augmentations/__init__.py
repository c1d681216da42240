"""How images are changed before the net is trained on them."""

from engram.augmentations.rand_augment import RandAugment
from engram.augmentations.random_view import RandomView
from engram.augmentations.view import UNCHANGED, ViewAugmentation, augment_view

__all__ = ["UNCHANGED", "RandAugment", "RandomView", "ViewAugmentation", "augment_view"]
