"""How one step trains the net, and the losses that schemes are made of."""

from engram.schemes.agem import AveragedGradientEpisodicMemory, project_gradient
from engram.schemes.asymmetric import AsymmetricReplay, own_classes_loss
from engram.schemes.contrastive import SupervisedContrastiveReplay, supervised_contrastive_loss
from engram.schemes.dark import DarkExperienceReplay, stored_logits_loss
from engram.schemes.dvc import DualViewConsistency, dual_view_loss
from engram.schemes.ewc import ElasticWeightConsolidation
from engram.schemes.experience_replay import ExperienceReplay
from engram.schemes.fine_tune import FineTune
from engram.schemes.lwf import LearningWithoutForgetting, distillation_loss
from engram.schemes.momentum_distillation import MomentumDistillation
from engram.schemes.ocm import (
    MutualInformationMaximization,
    memory_information_loss,
    sixteen_labels,
    sixteen_transforms,
    stream_information_loss,
)
from engram.schemes.proxy_contrastive import ProxyContrastiveReplay, proxy_contrastive_loss
from engram.schemes.untrained import Untrained

__all__ = [
    "AsymmetricReplay",
    "AveragedGradientEpisodicMemory",
    "DarkExperienceReplay",
    "DualViewConsistency",
    "ElasticWeightConsolidation",
    "ExperienceReplay",
    "FineTune",
    "LearningWithoutForgetting",
    "MomentumDistillation",
    "MutualInformationMaximization",
    "ProxyContrastiveReplay",
    "SupervisedContrastiveReplay",
    "Untrained",
    "distillation_loss",
    "dual_view_loss",
    "memory_information_loss",
    "own_classes_loss",
    "project_gradient",
    "proxy_contrastive_loss",
    "sixteen_labels",
    "sixteen_transforms",
    "stored_logits_loss",
    "stream_information_loss",
    "supervised_contrastive_loss",
]
