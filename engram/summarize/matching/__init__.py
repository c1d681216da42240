"""What summaries are made to match: one class for each kind of loss, found by name."""

from engram.summarize.matching.base import MATCHING, MatchingLoss, matching_name
from engram.summarize.matching.features import FeatureMatching, feature_matching_loss
from engram.summarize.matching.gradients import GradientMatching, GradientTarget, gradient_target, gradient_terms
from engram.summarize.matching.losses import gradient_matching_loss, mean_feature, relationship_loss

MATCHING["gradients"] = GradientMatching
MATCHING["features"] = FeatureMatching

__all__ = [
    "MATCHING",
    "FeatureMatching",
    "GradientMatching",
    "GradientTarget",
    "MatchingLoss",
    "feature_matching_loss",
    "gradient_matching_loss",
    "gradient_target",
    "gradient_terms",
    "matching_name",
    "mean_feature",
    "relationship_loss",
]
