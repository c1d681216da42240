"""Average pooling by two. On a CPU it is several times faster than torch's, and it can be differentiated repeatedly.

The mean of four neighbors is linear: its gradient gives a quarter to each of them, and the gradient of that is the mean
of four again. If the number of rows or columns is odd, the last one is left out, as in `avg_pool2d`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def halve(x: Tensor) -> Tensor:
    """Return the same as `avg_pool2d(x, 2)`."""
    halved: Tensor = _Mean.apply(x)  # type: ignore[no-untyped-call]
    return halved


class _Mean(torch.autograd.Function):
    """Takes the mean of each block of 2×2 pixels."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.size = x.shape[-2:]
        height, width = (side // 2 * 2 for side in ctx.size)
        rows = x[..., 0:height:2, :width] + x[..., 1:height:2, :width]
        return (rows[..., 0::2] + rows[..., 1::2]).mul_(0.25)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _Spread.apply(gradient, *ctx.size)  # type: ignore[no-any-return, no-untyped-call]


class _Spread(torch.autograd.Function):
    """Gives a quarter of each value to each pixel of its 2×2 block: the gradient of `_Mean`."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, height: int, width: int) -> Tensor:
        quarter = gradient * 0.25
        bottom, right = height // 2 * 2, width // 2 * 2
        make = quarter.new_empty if (bottom, right) == (height, width) else quarter.new_zeros
        spread = make(*quarter.shape[:-2], height, width)
        spread[..., 0:bottom:2, 0:right:2] = quarter
        spread[..., 0:bottom:2, 1:right:2] = quarter
        spread[..., 1:bottom:2, :] = spread[..., 0:bottom:2, :]
        return spread

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _Mean.apply(gradient), None, None  # type: ignore[no-untyped-call]
