"""How GDumb changes a batch before it learns from it: shifts and flips of each image, and CutMix (Yun et al., 2019)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

Box = tuple[int, int, int, int]
"""Top, bottom, left and right of a part of an image; the bottom row and the right column lie outside."""


def shift_and_flip(images: Tensor, shift: int, flip: float, generator: torch.Generator) -> Tensor:
    """Return each image moved by up to `shift` pixels, with zeros around it, and mirrored with probability `flip`."""
    count, _, height, width = images.shape
    corners = torch.randint(2 * shift + 1, (count, 2), generator=generator).tolist()
    padded = F.pad(images, (shift, shift, shift, shift))
    moved = torch.stack(
        [image[:, top : top + height, left : left + width] for image, (top, left) in zip(padded, corners, strict=True)]
    )
    mirrored = (torch.rand(count, generator=generator) < flip).to(images.device)
    return torch.where(mirrored.view(-1, 1, 1, 1), moved.flip(3), moved)


def draw_box(height: int, width: int, generator: torch.Generator) -> Box:
    """Return a box of a share of the image that is drawn uniformly, around a random pixel, cut off at the edges."""
    side = float(torch.rand((), generator=generator)) ** 0.5
    half_height, half_width = int(height * side) // 2, int(width * side) // 2
    row, column = (int(torch.randint(length, (), generator=generator)) for length in (height, width))
    top, bottom = max(0, row - half_height), min(height, row + half_height)
    return top, bottom, max(0, column - half_width), min(width, column + half_width)


def cut_and_mix(images: Tensor, partners: Tensor, box: Box) -> tuple[Tensor, float]:
    """Return the images with this box taken from their partners, and the share of the pixels that stays their own."""
    top, bottom, left, right = box
    mixed = images.clone()
    mixed[:, :, top:bottom, left:right] = partners[:, :, top:bottom, left:right]
    return mixed, 1 - (bottom - top) * (right - left) / images[0, 0].numel()
