"""Nets: the backbone, the summarizing net, and adapters for nets of your own."""

from engram.nets.convnet import ConvNet
from engram.nets.custom import (
    Flattened,
    custom_backbone,
    custom_theta,
    output_shape,
    require_size,
    require_theta,
    theta_above,
)
from engram.nets.resnet import ReducedResNet18

__all__ = [
    "ConvNet",
    "Flattened",
    "ReducedResNet18",
    "custom_backbone",
    "custom_theta",
    "output_shape",
    "require_size",
    "require_theta",
    "theta_above",
]
