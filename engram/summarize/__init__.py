"""Summarizing stream data: queue, differentiable augmentation, matching losses, the summarizer."""

from engram.summarize.differentiable_augmentation import (
    AugmentationRanges,
    DifferentiableAugmentation,
    augment_differentiably,
    draw_augmentation,
)
from engram.summarize.image_optimizer import image_learning_rate
from engram.summarize.matching import (
    MATCHING,
    MatchingLoss,
    gradient_matching_loss,
    gradient_target,
    gradient_terms,
    mean_feature,
    relationship_loss,
)
from engram.summarize.queue import ClassQueue
from engram.summarize.stream_summarizer import StreamSummarizer

__all__ = [
    "MATCHING",
    "AugmentationRanges",
    "ClassQueue",
    "DifferentiableAugmentation",
    "MatchingLoss",
    "StreamSummarizer",
    "augment_differentiably",
    "draw_augmentation",
    "gradient_matching_loss",
    "gradient_target",
    "gradient_terms",
    "image_learning_rate",
    "mean_feature",
    "relationship_loss",
]
