"""Checks of images and labels, made before anything changes."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engram.base.errors import InputError

Label = int | str
Labels = np.ndarray[Any, Any]
"""An array of labels: integers, strings, or objects where a label may be None or does not fit 64 bits."""

LONGEST_LABEL, LARGEST_LABEL = 10_000, 1 << 10_000
"""Most characters of a label that is a string, and bound of one that is an integer; others could not be saved."""
SMALLEST = 16
"""Smallest side of an image in pixels; below it the nets have nothing left to pool."""


def check_images(x: Any, expected: tuple[int, int, int] | None, *, allow_empty: bool = False) -> Tensor:
    """Return a copy of the images as a float32 or uint8 tensor (N,C,H,W), or raise an `InputError`."""
    if isinstance(x, Tensor):
        if x.layout != torch.strided or x.is_meta or x.is_quantized:
            raise InputError(f"images are a {x.layout} tensor of {x.dtype} on {x.device}: give a plain one")
        images = x.detach().to("cpu", copy=True)
    else:
        try:
            images = torch.from_numpy(np.array(x, order="C"))
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"images must be a tensor or an array (N,C,H,W); got {type(x).__name__}") from error
    if images.ndim != 4:
        raise InputError(f"images must have the shape (N,C,H,W); got {tuple(images.shape)}: add the missing axes")
    if not len(images) and not allow_empty:
        raise InputError("an empty batch was given: at least one image is needed")
    shape = tuple(images.shape[1:])
    if expected is not None and shape != expected:
        raise InputError(f"images are {shape} (C,H,W); the stream began with {expected}: convert them first")
    if expected is None:
        require_shape(shape)
    if images.dtype == torch.uint8:
        return images
    if not images.is_floating_point():
        raise InputError(f"images are {images.dtype}: give floats in [0,1], or uint8")
    images = images.float()
    if not torch.isfinite(images).all():
        raise InputError("images contain NaN or infinite values")
    if len(images) and (images.min() < 0 or images.max() > 1):
        low, high = float(images.min()), float(images.max())
        remedy = "undo their normalization" if low < 0 else "divide by 255, or give uint8"
        raise InputError(f"float images must lie in [0,1]; got [{low:.4g}, {high:.4g}]: {remedy}")
    return images


def require_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the shape of an image (C,H,W), or raise an `InputError` if a learner cannot take such images."""
    if len(shape) != 3 or shape[0] not in (1, 3) or shape[1] != shape[2] or shape[1] < SMALLEST:
        hint = "; transpose (N,H,W,C) to (N,C,H,W)" if shape[-1:] in ((1,), (3,)) else ""
        needed = f"1 or 3 channels, square images, {SMALLEST} px at least"
        raise InputError(f"images are {shape} (C,H,W); need {needed}{hint}")
    channels, height, width = shape
    return channels, height, width


def check_labels(y: Any, count: int, known: Sequence[Label]) -> list[Label]:
    """Return the labels as Python ints or strs, or raise an `InputError`; all must be of the kind already known."""
    if isinstance(y, Tensor):
        if y.is_floating_point() or y.dtype == torch.bool:
            raise InputError(f"labels are {y.dtype}: give integers or strings")
        y = y.detach().cpu().tolist()
    else:
        y = _as_sequence(y)
    labels: list[Label] = []
    for label in y:
        if isinstance(label, str):
            labels.append(str(label))
        elif isinstance(label, numbers.Integral) and not isinstance(label, bool | np.bool_):
            labels.append(int(label))
        else:
            raise InputError(f"label {label!r} is {type(label).__name__}: give integers or strings")
    for label in labels:
        if len(label) > LONGEST_LABEL if isinstance(label, str) else abs(label) >= LARGEST_LABEL:
            raise InputError(
                f"a label is too long: strings have at most {LONGEST_LABEL:,} characters, integers 10,000 bits"
            )
    if len(labels) != count:
        raise InputError(f"{count} images came with {len(labels)} labels: one each is needed")
    kinds = {type(label) for label in [*labels, *known[:1]]}
    if len(kinds) > 1:
        raise InputError("labels mix integers and strings: use one kind for the whole stream")
    return labels


def _as_sequence(y: Any) -> Sequence[Any]:
    """Return labels in a sequence: arrays, columns of tables (pandas, pyarrow, Hugging Face) and other collections."""
    if getattr(y, "ndim", 1) == 2 and y.shape[1] == 1 and hasattr(y, "to_numpy"):
        y = y.to_numpy()[:, 0]  # a table with one column
    for method in ("to_pylist", "tolist"):
        if hasattr(y, method):
            y = getattr(y, method)()
            break
    if isinstance(y, Sequence) and not isinstance(y, str | bytes | bytearray):
        return y
    if isinstance(y, str | bytes | bytearray | Mapping | Set) or not (hasattr(y, "__len__") and hasattr(y, "__iter__")):
        raise InputError(f"labels must be a sequence, one an image; got {type(y).__name__}")
    return list(y)


def likeliest_labels(scores: Tensor, labels: Sequence[Label]) -> Labels:
    """Return the label with the highest score in each row; None for columns behind those of `labels`."""
    likeliest = scores.argmax(1).tolist() if len(scores) else []
    if scores.shape[1] > len(labels):
        return np.array([*labels, *[None] * (scores.shape[1] - len(labels))], dtype=object)[likeliest]
    return label_array(labels)[likeliest]


def label_array(labels: Sequence[Label]) -> Labels:
    """Return labels as an array of 64-bit integers or strings; of objects if integers do not fit."""
    small = all(isinstance(label, str) or -(1 << 63) <= label < 1 << 63 for label in labels)
    strings = bool(labels) and isinstance(labels[0], str)
    return np.array(labels, dtype=(np.str_ if strings else np.int64) if small else object)
