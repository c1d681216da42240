"""Backbones and heads."""

from engram.nets.convnet import ConvNet
from engram.nets.own import own_backbone, own_theta, require_theta
from engram.nets.resnet import ReducedResNet18, require_width

__all__ = ["ConvNet", "ReducedResNet18", "own_backbone", "own_theta", "require_theta", "require_width"]
