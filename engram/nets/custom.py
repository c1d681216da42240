"""Adapters for the user's own nets: any module whose output has the same size for every image."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import UninitializedParameter

from engram.base.errors import InputError
from engram.base.heads import GrowingLinear
from engram.base.initialization import NORMS, materialize
from engram.base.interfaces import SummarizingNet


class Flattened(nn.Module):
    """A backbone made from any module. The module's output, flattened to one vector per image, is the features.

    Batch norm cannot train on a single value per channel. So if a module with batch norm trains on a single image, it
    gets this image twice: the mean stays the same, and a single value still has no variance.

    Args:
        module: the module.
        feature_width: number of features per image.
    """

    def __init__(self, module: nn.Module, feature_width: int) -> None:
        super().__init__()
        self.module, self.feature_width = module, feature_width
        self.normalizes_batches = has_batch_norm(module)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of the images (N,D)."""
        count = x.shape[0]
        if self.training and self.normalizes_batches and count == 1:
            x = x.expand(2, -1, -1, -1)
        features: Tensor = self.module(x.contiguous())
        return features[:count].flatten(1)


class CustomTheta(SummarizingNet):
    """A summarizing net made from a backbone and a linear head.

    Args:
        backbone: turns images into features.
        head: turns features into logits.
        matched: names of the backbone's weight matrices and kernels whose gradients are matched; those of the head's
            weights are, if it names none.
    """

    def __init__(self, backbone: Flattened, head: GrowingLinear, matched: list[str]) -> None:
        super().__init__()
        self.backbone, self.head, self.matched = backbone, head, matched

    @property
    def matched_weights(self) -> list[Tensor]:
        return [self.backbone.get_parameter(name) for name in self.matched] or [self.head.weight]

    def features(self, x: Tensor) -> Tensor:
        features: Tensor = self.backbone(x)
        return features

    def classify(self, features: Tensor) -> Tensor:
        logits: Tensor = self.head(features)
        return logits

    def grow(self, classes: int, generator: torch.Generator) -> None:
        self.head.grow(classes, generator)


def require_theta(module: nn.Module) -> None:
    """Raise an `InputError` if a module cannot be a summarizing net for any images."""
    if has_batch_norm(module):
        raise InputError(
            "theta has batch norm, which mixes the gradients of images of different classes: use instance, group or "
            "layer norm"
        )
    if any(isinstance(weight, UninitializedParameter) for weight in module.parameters()):
        raise InputError(
            "theta has lazy layers without weights: call it on an image first, so that they get their weights"
        )
    if not _kernels(module):
        raise InputError("theta has no weights whose gradients could be matched: give it at least one convolution")


def has_batch_norm(module: nn.Module) -> bool:
    """Return whether a module contains batch norm."""
    return any(isinstance(part, _BatchNorm) for part in module.modules())


def custom_backbone(module: nn.Module, image_shape: tuple[int, int, int], device: torch.device) -> Flattened:
    """Move a module to the device, set it to training mode, and return it as a backbone.

    The number of features is found by calling the module on images of zeros.

    Args:
        module: the module.
        image_shape: channels, height and width of an image.
        device: device to move it to.
    """
    return Flattened(module.to(device).train(), output_shape(module, image_shape, device).numel())


def require_size(backbone: Flattened, image_shape: tuple[int, int, int], size: int, device: torch.device) -> None:
    """Raise an `InputError` if a backbone does not give as many features for images of another size.

    Args:
        backbone: the backbone.
        image_shape: channels, height and width of an image.
        size: pixels per side of the views it is to be trained on.
        device: device of the backbone.
    """
    fix = "let it pool over all pixels, or train on views of full size with augment={'side': 1}"
    try:
        width = output_shape(backbone.module, (image_shape[0], size, size), device).numel()
    except InputError as error:
        raise InputError(f"{error}; such views are what it is trained on: {fix}") from error
    if width != backbone.feature_width:
        raise InputError(
            f"{type(backbone.module).__name__} gives {backbone.feature_width} features for images of "
            f"{image_shape[1]} pixels and {width} for the views of {size} that it is trained on: {fix}"
        )


def custom_theta(
    module: nn.Module, image_shape: tuple[int, int, int], generator: torch.Generator, device: torch.device
) -> SummarizingNet:
    """Return a module as a summarizing net: with a growing linear head, or as it is if it is a `SummarizingNet`.

    Args:
        module: the module.
        image_shape: channels, height and width of an image.
        generator: source of the head's initial weights.
        device: device to move the net to.
    """
    if isinstance(module, SummarizingNet):
        return module.to(device)
    backbone = custom_backbone(module, image_shape, device)
    head = materialize(lambda: GrowingLinear(backbone.feature_width, 0), generator, device)
    matched = _used(backbone, torch.zeros(1, *image_shape, device=device))
    if not matched:
        raise InputError(
            "theta uses none of its weights whose gradients could be matched: give it a convolution that it uses"
        )
    return CustomTheta(backbone, head, matched)


def theta_above(backbone: Flattened, latent_shape: tuple[int, int, int], generator: torch.Generator) -> CustomTheta:
    """Return a summarizing net for latents: a copy of the part above the cut with a linear head that grows.

    Batch norms of the copy use their running statistics, so that latents do not influence each other. If the part has
    no weights, the gradients of the head are matched.

    Args:
        backbone: the part above the cut.
        latent_shape: channels, height and width of the latents of an image.
        generator: source of the head's initial weights.
    """
    copied = copy.deepcopy(backbone).eval()
    blank = torch.zeros(1, *latent_shape)
    device = next((parameter.device for parameter in copied.parameters()), blank.device)
    head = materialize(lambda: GrowingLinear(backbone.feature_width, 0), generator, device)
    return CustomTheta(copied, head, _used(copied, blank.to(device)) if _kernels(copied) else [])


def _kernels(module: nn.Module) -> dict[str, Tensor]:
    """Return the trainable weights with two or more dimensions, by name, except those of norm layers."""
    scales = {id(scale) for layer in module.modules() if isinstance(layer, NORMS) for scale in layer.parameters()}
    return {
        name: weight
        for name, weight in module.named_parameters()
        if weight.ndim > 1 and weight.requires_grad and id(weight) not in scales
    }


def _used(module: nn.Module, images: Tensor) -> list[str]:
    """Return the names of the kernels that the features of these images depend on."""
    kernels = _kernels(module)
    with torch.enable_grad():
        features: Tensor = module(images)
        gradients = torch.autograd.grad(features.sum(), list(kernels.values()), allow_unused=True)
    return [name for name, gradient in zip(kernels, gradients, strict=True) if gradient is not None]


def output_shape(module: nn.Module, image_shape: tuple[int, int, int], device: torch.device) -> torch.Size:
    """Return the shape of a module's output for one image, found by calling it on two images of zeros."""
    module = module.to(device)
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            output = module(torch.zeros(2, *image_shape, device=device))
    except Exception as error:  # a module may raise anything if it does not fit the images
        raise InputError(
            f"{type(module).__name__} cannot take images of shape {image_shape} (C,H,W): {error}"
        ) from error
    finally:
        module.train(training)
    if not isinstance(output, Tensor) or output.ndim < 2 or len(output) != 2:
        got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise InputError(
            f"{type(module).__name__} gives {got} for two images: it must give one row of features per image"
        )
    return output[0].shape
