"""How many images of a source a learner names rightly, over all of them and class by class."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Protocol

from engram.base.errors import InputError
from engram.base.validation import Label, Labels, check_labels
from engram.streams import ImageReading, to_batches

BATCH = 100
"""Number of images that are answered together."""


class Answering(Protocol):
    """What answers: a learner, or what was saved of it for inference."""

    labels: list[Label]

    @property
    def reading(self) -> ImageReading:
        """How image files are read for it."""

    def predict(self, x: Any) -> Labels:
        """Return the likeliest label of each image."""


@dataclass(frozen=True)
class ImageScores:
    """What a learner answered on labelled images.

    Args:
        images: number of images of each class.
        right: number of right answers of each class.
        confused: number of wrong answers, by class and answer.
    """

    images: Counter[Label]
    right: Counter[Label]
    confused: Counter[tuple[Label, Label]]

    @property
    def accuracy(self) -> float:
        """Share of right answers in percent."""
        return 100 * self.right.total() / self.images.total()

    @property
    def by_class(self) -> dict[Label, float]:
        """Share of right answers in percent, by class."""
        return {label: 100 * self.right[label] / count for label, count in self.images.items()}

    @property
    def balanced(self) -> float:
        """Mean over the classes of the share of right answers, in percent."""
        return sum(self.by_class.values()) / len(self.by_class)


def score_images(learner: Answering, source: Any) -> ImageScores:
    """Let a learner answer on every image of a source, and return what was right. It learns nothing from them.

    Args:
        learner: what answers.
        source: labelled images, as `Learner.learn` takes them.
    """
    images, right, confused = Counter[Label](), Counter[Label](), Counter[tuple[Label, Label]]()
    for x, y in to_batches(source, replace(learner.reading, batch=BATCH)):
        if not len(y):
            continue
        truths = check_labels(y, len(y), learner.labels)
        for answer, label in zip(learner.predict(x).tolist(), truths, strict=True):
            images[label] += 1
            right[label] += answer == label
            confused[(label, answer)] += answer != label
    if not images:
        raise InputError("there is no image to score on: give a source with at least one")
    return ImageScores(images, right, +confused)
