"""Summarizing stream data: queue, differentiable augmentation, matching losses, the summarizer."""

from engram.summarize.augment import AugmentationRanges, DifferentiableAugmentation, augment, draw_augmentation
from engram.summarize.image_optimizer import image_learning_rate
from engram.summarize.losses import gradient_matching_loss, mean_feature, relationship_loss
from engram.summarize.matching import MatchingTarget, matching_target, summarizing_loss
from engram.summarize.queue import ClassQueue
from engram.summarize.stream_summarizer import StreamSummarizer

__all__ = [
    "AugmentationRanges",
    "ClassQueue",
    "DifferentiableAugmentation",
    "MatchingTarget",
    "StreamSummarizer",
    "augment",
    "draw_augmentation",
    "gradient_matching_loss",
    "image_learning_rate",
    "matching_target",
    "mean_feature",
    "relationship_loss",
    "summarizing_loss",
]
