"""Learners as scikit-learn classifiers."""

from engram.sklearn.classifier import EngramClassifier

__all__ = ["EngramClassifier"]
