"""How one step trains the net, and the losses and augmentations that schemes are made of."""

from engram.schemes.agem import AveragedGradientEpisodicMemory, project_gradient
from engram.schemes.augmentation import ViewAugmentation, augment_view
from engram.schemes.contrastive import SupervisedContrastiveReplay, supervised_contrastive_loss
from engram.schemes.dvc import DualViewConsistency, dual_view_loss
from engram.schemes.ewc import ElasticWeightConsolidation
from engram.schemes.experience_replay import ExperienceReplay
from engram.schemes.fine_tune import FineTune
from engram.schemes.lwf import LearningWithoutForgetting, distillation_loss
from engram.schemes.ocm import (
    MutualInformationMaximisation,
    memory_information_loss,
    sixteen_labels,
    sixteen_transforms,
    stream_information_loss,
)
from engram.schemes.rand_augment import RandAugment

__all__ = [
    "AveragedGradientEpisodicMemory",
    "DualViewConsistency",
    "ElasticWeightConsolidation",
    "ExperienceReplay",
    "FineTune",
    "LearningWithoutForgetting",
    "MutualInformationMaximisation",
    "RandAugment",
    "SupervisedContrastiveReplay",
    "ViewAugmentation",
    "augment_view",
    "distillation_loss",
    "dual_view_loss",
    "memory_information_loss",
    "project_gradient",
    "sixteen_labels",
    "sixteen_transforms",
    "stream_information_loss",
    "supervised_contrastive_loss",
]
