"""The embedded stream: scikit-learn's handwritten digits (UCI, 1797 images of 8×8), which need no download."""

from __future__ import annotations

import numpy as np

from engram.streams.dataset import DataError, Dataset

TEST_EVERY = 5
"""Every fifth image of each class is a test image."""


def load_digits(size: int = 16) -> Dataset:
    """Load the digits as gray images. Images larger than 8×8 repeat each pixel.

    Args:
        size: pixels per side of the loaded images, a multiple of 8.
    """
    from sklearn.datasets import load_digits as load

    if size % 8:
        raise DataError(f"the digits have 8×8 pixels, so {size} pixels per side are not possible: give a multiple of 8")
    scale = size // 8
    bunch = load()
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    images = pixels.repeat(scale, axis=1).repeat(scale, axis=2)[:, None]
    labels = bunch.target.astype(np.int64)
    test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        test[np.flatnonzero(labels == label)[::TEST_EVERY]] = True
    names = tuple(str(label) for label in range(10))
    return Dataset("digits", images[~test], labels[~test], images[test], labels[test], names)
