"""Nets of the caller's own, in place of ours: any module that turns images into something of one size an image."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from engram.core import InputError, SummarizingNet
from engram.heads import GrowingLinear
from engram.initialise import NORMS, materialise


class Flattened(nn.Module):
    """A module whose output, one vector an image, is the features."""

    def __init__(self, module: nn.Module, feature_width: int) -> None:
        super().__init__()
        self.module, self.feature_width = module, feature_width

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.module(x.contiguous())
        return features.flatten(1)


class OwnTheta(SummarizingNet):
    """A module as summarizing net: its output is the features, and the gradients of its weight matrices and kernels are
    matched."""

    def __init__(self, backbone: Flattened, head: GrowingLinear) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    @property
    def matched_weights(self) -> list[Tensor]:
        return _kernels(self.backbone)

    def features(self, x: Tensor) -> Tensor:
        features: Tensor = self.backbone(x)
        return features

    def classify(self, features: Tensor) -> Tensor:
        logits: Tensor = self.head(features)
        return logits

    def grow(self, classes: int, generator: torch.Generator) -> None:
        self.head.grow(classes, generator)


def require_theta(module: nn.Module) -> None:
    """Refuse what cannot be a summarizing net, whatever the images."""
    if any(isinstance(part, _BatchNorm) for part in module.modules()):
        raise InputError(
            "theta has batch norm, through which images influence each other, so that no gradient belongs to one "
            "class: use instance, group or layer norm"
        )
    if not _kernels(module):
        raise InputError("theta has no weights whose gradients could be matched: give it a convolution at least")


def own_backbone(module: nn.Module, image_shape: tuple[int, int, int], device: torch.device) -> Flattened:
    """The module on its device and in training mode, with the width of its features found by a trial."""
    return Flattened(module.to(device).train(), _feature_width(module, image_shape, device))


def own_theta(
    module: nn.Module, image_shape: tuple[int, int, int], generator: torch.Generator, device: torch.device
) -> SummarizingNet:
    """The module as it is if it is a `SummarizingNet`, else with a growing head of ours behind it."""
    if isinstance(module, SummarizingNet):
        return module.to(device)
    backbone = own_backbone(module, image_shape, device)
    head = materialise(lambda: GrowingLinear(backbone.feature_width, 0), generator, device)
    return OwnTheta(backbone, head)


def _kernels(module: nn.Module) -> list[Tensor]:
    """Trainable weights of two dimensions or more, those of norms apart."""
    scales = {id(scale) for layer in module.modules() if isinstance(layer, NORMS) for scale in layer.parameters()}
    return [
        weight
        for weight in module.parameters()
        if weight.ndim > 1 and weight.requires_grad and id(weight) not in scales
    ]


def _feature_width(module: nn.Module, image_shape: tuple[int, int, int], device: torch.device) -> int:
    module = module.to(device)
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            output = module(torch.zeros(2, *image_shape, device=device))
    except Exception as error:  # a module may fail in any way, and all of them mean that it does not fit
        raise InputError(f"{type(module).__name__} cannot take images {image_shape} (C,H,W): {error}") from error
    finally:
        module.train(training)
    if not isinstance(output, Tensor) or output.ndim < 2 or len(output) != 2:
        got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise InputError(f"{type(module).__name__} gives {got} for two images: it must give features, one row an image")
    return output[0].numel()
