"""Nets of the caller's own, in place of ours: any module that turns images into something of one size an image."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import UninitializedParameter

from engram.core import SummarizingNet
from engram.errors import InputError
from engram.heads import GrowingLinear
from engram.initialise import NORMS, materialise


class Flattened(nn.Module):
    """A module whose output, one vector an image, is the features.

    Batch norm over a single value refuses to train; so a module with batch norm is shown a single image twice, which
    has the same mean, and no variance either.
    """

    def __init__(self, module: nn.Module, feature_width: int) -> None:
        super().__init__()
        self.module, self.feature_width = module, feature_width
        self.normalises_batches = has_batch_norm(module)

    def forward(self, x: Tensor) -> Tensor:
        count = len(x)
        if count == 1 and self.training and self.normalises_batches:
            x = x.expand(2, -1, -1, -1)
        features: Tensor = self.module(x.contiguous())
        return features[:count].flatten(1)


class OwnTheta(SummarizingNet):
    """A module as summarizing net: its output is the features, and the gradients of those of its weight matrices and
    kernels that are named are matched."""

    def __init__(self, backbone: Flattened, head: GrowingLinear, matched: list[str]) -> None:
        super().__init__()
        self.backbone, self.head, self.matched = backbone, head, matched

    @property
    def matched_weights(self) -> list[Tensor]:
        return [self.backbone.get_parameter(name) for name in self.matched]

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
    if has_batch_norm(module):
        raise InputError(
            "theta has batch norm, through which images influence each other, so that no gradient belongs to one "
            "class: use instance, group or layer norm"
        )
    if any(isinstance(weight, UninitializedParameter) for weight in module.parameters()):
        raise InputError("theta has lazy layers, whose weights are not there yet: show it an image before you give it")
    if not _kernels(module):
        raise InputError("theta has no weights whose gradients could be matched: give it a convolution at least")


def has_batch_norm(module: nn.Module) -> bool:
    return any(isinstance(part, _BatchNorm) for part in module.modules())


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
    matched = _used(backbone, torch.zeros(1, *image_shape, device=device))
    if not matched:
        raise InputError("theta uses none of its weights whose gradients could be matched: give it a convolution")
    return OwnTheta(backbone, head, matched)


def _kernels(module: nn.Module) -> dict[str, Tensor]:
    """Trainable weights of two dimensions or more, by name, those of norms apart."""
    scales = {id(scale) for layer in module.modules() if isinstance(layer, NORMS) for scale in layer.parameters()}
    return {
        name: weight
        for name, weight in module.named_parameters()
        if weight.ndim > 1 and weight.requires_grad and id(weight) not in scales
    }


def _used(module: nn.Module, images: Tensor) -> list[str]:
    """Names of the kernels that the features of these images depend on."""
    kernels = _kernels(module)
    with torch.enable_grad():
        features: Tensor = module(images)
        gradients = torch.autograd.grad(features.sum(), list(kernels.values()), allow_unused=True)
    return [name for name, gradient in zip(kernels, gradients, strict=True) if gradient is not None]


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
