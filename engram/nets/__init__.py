"""Backbones and heads."""

from engram.nets.convnet import ConvNet
from engram.nets.resnet import ReducedResNet18

__all__ = ["ConvNet", "ReducedResNet18"]
