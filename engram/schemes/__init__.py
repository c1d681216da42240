"""How one step trains the net, and the losses and augmentations that schemes are made of."""

from engram.schemes.augmentation import ViewAugmentation, augment_view
from engram.schemes.contrastive import SupervisedContrastiveReplay, supervised_contrastive_loss

__all__ = ["SupervisedContrastiveReplay", "ViewAugmentation", "augment_view", "supervised_contrastive_loss"]
