"""How images are changed before the net is trained on them."""

from engram.augmentations.rand_augment import RandAugment
from engram.augmentations.view import ViewAugmentation, augment_view

__all__ = ["RandAugment", "ViewAugmentation", "augment_view"]
