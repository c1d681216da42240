"""The frozen front of a net, and the net as a whole.

Latents are kept as maps (C,H,W), whatever the cut gives: features (D) as (D,1,1), and tokens (T,D) as (D,T,1).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engram.base.errors import InputError
from engram.base.part import Part
from engram.base.precision import Precision, computing_in, widened
from engram.base.undo import Undo
from engram.latents.cutting import cut
from engram.nets import Flattened, custom_backbone, output_shape

BATCH = 128
"""Number of images that go through the front together."""


class FrozenFront(Part):
    """Turns images into latents. It never learns: its weights and batch-norm statistics stay as they were given.

    Args:
        module: the front of a net.
        image_shape: channels, height and width of an image.
        device: device to compute on.
        precision: what it computes in.
    """

    def __init__(
        self, module: nn.Module, image_shape: tuple[int, int, int], device: torch.device, precision: Precision
    ) -> None:
        self.precision = precision
        self.to_device(device)
        self.add_state("net", module.to(device).eval().requires_grad_(False), count_as="net")
        self.net: nn.Module
        outputs = output_shape(self.net, image_shape, device)
        if len(outputs) > 3:
            raise InputError(
                f"the cut gives {tuple(outputs)} for an image: cut where it gives three dimensions at most"
            )
        self.dimensions = len(outputs)
        channels, height, width = as_maps(torch.zeros(1, *outputs)).shape[1:]
        self.shape = (channels, height, width)
        """Channels, height and width of the latents of an image."""

    @torch.no_grad()
    def latents(self, images: Tensor) -> Tensor:
        """Return the latents (N,C,H,W) of images."""
        with computing_in(self.precision, self.device):
            return torch.cat([as_maps(widened(self.net(part.contiguous()))) for part in images.split(BATCH)])

    def remember(self) -> Undo:
        """Return a function that does nothing, because nothing here ever changes."""
        return lambda: None


class Above(nn.Module):
    """The part of a net above the cut, which takes latents in the form that they are kept in.

    Args:
        module: takes what the front gives.
        dimensions: dimensions of what the front gives for one image.
    """

    def __init__(self, module: nn.Module, dimensions: int) -> None:
        super().__init__()
        self.module, self.dimensions = module, dimensions

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the net. The latents are copied first, because layers may change their input."""
        features: Tensor = self.module(from_maps(x, self.dimensions).clone())
        return features


class WholeNet(nn.Module):
    """A backbone made from a front and what is above it.

    Args:
        front: turns images into what the cut gives.
        above: turns latents into features.
    """

    def __init__(self, front: nn.Module, above: nn.Module, feature_width: int) -> None:
        super().__init__()
        self.front, self.above, self.feature_width = front, above, feature_width

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of the images (N,D)."""
        features: Tensor = self.above(as_maps(self.front(x)))
        return features


def split_net(
    module: nn.Module, freeze: str, image_shape: tuple[int, int, int], device: torch.device, precision: Precision
) -> tuple[FrozenFront, Flattened]:
    """Return the frozen front of a module, and what is above it as a backbone that takes latents.

    Args:
        module: the module.
        freeze: how much of it is frozen, as `cut` takes it.
        image_shape: channels, height and width of an image.
        device: device to move it to.
        precision: what the front computes in.
    """
    below, rest = cut(module, freeze)
    front = FrozenFront(below, image_shape, device, precision)
    return front, custom_backbone(Above(rest, front.dimensions), front.shape, device)


def as_maps(outputs: Tensor) -> Tensor:
    """Return outputs (N,D), (N,T,D) or (N,C,H,W) as maps (N,C,H,W)."""
    if outputs.ndim == 2:
        outputs = outputs[:, :, None, None]
    if outputs.ndim == 3:
        outputs = outputs.transpose(1, 2)[..., None]
    return outputs.contiguous()


def from_maps(maps: Tensor, dimensions: int) -> Tensor:
    """Return maps (N,C,H,W) as what the cut gave, of so many dimensions for one image."""
    if dimensions == 1:
        return maps.flatten(1)
    return maps.squeeze(-1).transpose(1, 2) if dimensions == 2 else maps
