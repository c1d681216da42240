"""Test, then train: every batch is predicted before it is learned from, so a stream needs no test set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from engram.base.errors import InputError, NotReadyError
from engram.base.part import Part
from engram.base.validation import Label, check_images, check_labels
from engram.learner import Learner
from engram.persistence.state import Tree

WINDOW = 1000


class Prequential(Part):
    """Measures accuracy on each batch before the learner learns from it, in percent.

    It says how well the learner does on what comes now. On a stream that comes task by task this says little about past
    classes: keep some images aside to test those. An image of a class not seen yet counts as wrong.

    Args:
        learner: the learner to measure; call `observe` of this object instead of the learner's.
        every: predict one batch in this many. Predicting costs about a forward pass of the batch, and of the memory too
            if class means are made from it.
        window: number of images that `recent` looks back over.
    """

    def __init__(self, learner: Learner, every: int = 1, window: int = WINDOW) -> None:
        if min(every, window) < 1:
            raise InputError(f"every {every}, window {window}: need at least 1 of each")
        self.learner, self.every, self.window = learner, every, window
        self.add_state("batches", 0)
        self.add_state("tested", {})
        self.add_state("right", {})
        self.add_state("outcomes", torch.zeros(window, dtype=torch.bool))
        self.add_state("readings", 0)
        self.add_state("sum_of_readings", 0.0)
        self.batches: int
        self.tested: dict[str, int]
        """Number of images predicted, by label as text."""
        self.right: dict[str, int]
        self.outcomes: Tensor
        """Whether each of the last images was predicted rightly, as a ring."""
        self.readings: int
        self.sum_of_readings: float

    def observe(self, x: Any, y: Any) -> None:
        """Predict the batch if its turn has come, then learn from it."""
        images = check_images(x, self.learner.image_shape)
        labels = check_labels(y, len(images), self.learner.labels)
        due = self.batches % self.every == 0
        predicted = self._predicted(images) if due else ()
        self.learner.observe(images, labels)
        self.batches += 1
        if due:
            self._count(
                [bool(guess == label) for guess, label in zip(predicted, labels, strict=True)], list(map(str, labels))
            )

    def _predicted(self, images: Tensor) -> Sequence[Label | None]:
        try:
            return self.learner.predict(images).tolist()  # type: ignore[no-any-return]
        except NotReadyError:
            return [None] * len(images)

    def _count(self, outcomes: list[bool], labels: list[str]) -> None:
        position = self.total
        for outcome, label in zip(outcomes, labels, strict=True):
            self.tested[label] = self.tested.get(label, 0) + 1
            self.right[label] = self.right.get(label, 0) + outcome
            self.outcomes[position % self.window] = outcome
            position += 1
        self.readings += 1
        self.sum_of_readings += self.accuracy

    @property
    def total(self) -> int:
        """Number of images predicted."""
        return sum(self.tested.values())

    @property
    def accuracy(self) -> float:
        """Accuracy over all images predicted."""
        return _percent(sum(self.right.values()), self.total)

    @property
    def recent(self) -> float:
        """Accuracy over the last `window` images predicted."""
        return _percent(int(self.outcomes.sum()), min(self.total, self.window))

    @property
    def balanced(self) -> float:
        """Mean of the accuracies of the classes, however often each came."""
        each = [_percent(self.right[label], tested) for label, tested in self.tested.items()]
        return sum(each) / len(each) if each else 0.0

    @property
    def anytime(self) -> float:
        """Mean of `accuracy` after every batch predicted: the area under its curve."""
        return self.sum_of_readings / self.readings if self.readings else 0.0

    def summary(self) -> dict[str, float | int]:
        """Return all accuracies by name, and the number of images predicted."""
        names = ("accuracy", "recent", "balanced", "anytime")
        return {name: round(getattr(self, name), 4) for name in names} | {"images": self.total}

    def load_state(self, tree: Tree) -> None:
        super().load_state(tree)
        if self.tested.keys() != self.right.keys() or any(self.right[each] > self.tested[each] for each in self.tested):
            raise ValueError("its counts do not fit each other")


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0
