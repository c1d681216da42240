"""A learner with the manners of scikit-learn: it works in pipelines, cross validation and grid searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, validate_data

from engram.base.errors import InputError
from engram.learner import Learner
from engram.sklearn.rows import Array, shape_for, to_images, value_range


class EngramClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A learner as a scikit-learn classifier of images (N,C,H,W), or of rows (N,D) that become images.

    `fit` starts anew. `partial_fit` goes on, also with new classes; `classes` is never needed.

    >>> from sklearn.datasets import load_digits
    >>> from engram.sklearn import EngramClassifier
    >>> x, y = load_digits(return_X_y=True)
    >>> model = EngramClassifier("er", memory_size=20, options={"net": {"width": 8}}).fit(x[:40], y[:40])
    >>> model.predict_proba(x[:2]).shape
    (2, 10)

    Args:
        method: name of a method.
        memory_size: number of images the memory holds.
        memory_bytes: bytes of encoded images it holds instead.
        codec: how images are stored, if not as the method has it.
        image_shape: shape (C,H,W) of the images that rows are; found from their length if None.
        batch: number of images in a batch.
        passes: how often `fit` goes through the images.
        shuffle: whether `fit` draws the order of the images; otherwise they come as given.
        random_state: seed of every random draw, or a generator to draw it from.
        options: further arguments of `Learner` by name.
    """

    def __init__(
        self,
        method: str = "scr+ssd",
        *,
        memory_size: int | None = None,
        memory_bytes: int | str | None = None,
        codec: str | None = None,
        image_shape: tuple[int, int, int] | None = None,
        batch: int = 10,
        passes: int = 1,
        shuffle: bool = True,
        random_state: Any = 0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.memory_size = memory_size
        self.memory_bytes = memory_bytes
        self.codec = codec
        self.image_shape = image_shape
        self.batch = batch
        self.passes = passes
        self.shuffle = shuffle
        self.random_state = random_state
        self.options = options

    def fit(self, X: Any, y: Any) -> EngramClassifier:
        """Learn from these images alone, and return this object."""
        x, labels = self._validated(X, y, reset=True)
        draw = check_random_state(self.random_state)
        self._start(x, draw)
        self.classes_ = unique_labels(labels)
        for _ in range(self.passes):
            order = draw.permutation(len(x)) if self.shuffle else np.arange(len(x))
            self._observe(x[order], labels[order])
        self.learner_.tell_if_not_summarized()
        return self

    def partial_fit(self, X: Any, y: Any, classes: Sequence[Any] | None = None) -> EngramClassifier:
        """Learn from further images, in the order given, and return this object.

        Args:
            X: images or rows.
            y: labels; new ones may come at any time.
            classes: labels that `predict_proba` shall have a column for, even if they have not come yet.
        """
        started = hasattr(self, "learner_")
        x, labels = self._validated(X, y, reset=not started)
        if not started:
            self._start(x, check_random_state(self.random_state))
        known = [self.classes_] if started else []
        named = [] if classes is None else [np.asarray(classes)]
        self.classes_ = unique_labels(labels, *known, *named)
        self._observe(x, labels)
        return self

    def predict(self, X: Any) -> Array:
        """Return the likeliest label of each image."""
        shares = self.predict_proba(X)
        likeliest: Array = self.classes_[shares.argmax(1)]
        return likeliest

    def predict_proba(self, X: Any) -> Array:
        """Return the softmax of the learner's scores, in the order of `classes_`; 0 for classes that did not come."""
        check_is_fitted(self, "learner_")
        x = to_images(self._checked(X, reset=False), self.shape_, self.limits_)
        shares = np.zeros((len(x), len(self.classes_)))
        known = [self.arrived_[int(number)] for number in self.learner_.labels]
        columns = np.searchsorted(self.classes_, np.asarray(known, dtype=self.classes_.dtype))
        shares[:, columns] = self.learner_.predict_proba(x)[:, : len(known)]
        normalized: Array = shares / shares.sum(1, keepdims=True)
        return normalized

    def _start(self, x: Array, draw: np.random.RandomState) -> None:
        if self.batch < 1 or self.passes < 1:
            raise InputError(f"batch is {self.batch} and passes is {self.passes}: give at least 1")
        self.shape_, self.limits_ = shape_for(x, self.image_shape), value_range(x)
        self.arrived_: list[Any] = []
        given = {"codec": self.codec, "memory_size": self.memory_size, "memory_bytes": self.memory_bytes}
        arguments: Any = {name: value for name, value in given.items() if value is not None}
        arguments |= {"seed": int(draw.randint(1 << 31)), **(self.options or {})}
        self.learner_ = Learner(self.method, **arguments)

    def _observe(self, x: Array, labels: Array) -> None:
        """Let the learner observe images. It knows classes by the number of their arrival."""
        images = to_images(x, self.shape_, self.limits_)
        values = labels.tolist()
        self.arrived_ += [label for label in dict.fromkeys(values) if label not in self.arrived_]
        numbers = {label: number for number, label in enumerate(self.arrived_)}
        for start in range(0, len(images), self.batch):
            part = slice(start, start + self.batch)
            self.learner_.observe(images[part], [numbers[label] for label in values[part]])

    def _validated(self, X: Any, y: Any, reset: bool) -> tuple[Array, Array]:
        x, labels = self._checked(X, y, reset=reset)
        check_classification_targets(labels)
        return x, labels

    def _checked(self, X: Any, *y: Any, reset: bool) -> Any:
        x = validate_data(self, X, *y, reset=reset, allow_nd=True)
        images: Array = x[0] if y else x
        if not reset and images.ndim == 4 and images.shape[1:] != self.shape_:
            raise InputError(f"images have the shape {images.shape[1:]}, not {self.shape_}: give all one shape")
        return x
