"""Nets: the backbone, the summarizing net, and adapters for nets of your own."""

from engram.nets.convnet import ConvNet
from engram.nets.custom import custom_backbone, custom_theta, require_theta
from engram.nets.resnet import ReducedResNet18

__all__ = ["ConvNet", "ReducedResNet18", "custom_backbone", "custom_theta", "require_theta"]
