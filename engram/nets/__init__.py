"""Backbones and heads."""

from engram.nets.convnet import ConvNet
from engram.nets.linear import GrowingLinear
from engram.nets.resnet import ReducedResNet18

__all__ = ["ConvNet", "GrowingLinear", "ReducedResNet18"]
