"""Small nets with weights of their own, as a user brings them."""

from typing import Any

import torch
from torch import Tensor, nn

from engram import Learner
from engram.methods import find_method
from engram.persistence.state import flatten
from engram.testing import small_options


def bits(module: nn.Module) -> bytes:
    """Return everything a module holds, as bytes."""
    tensors, _ = flatten({name: tensor.detach() for name, tensor in module.state_dict().items()})
    return b"".join(tensor.contiguous().numpy().tobytes() for tensor in tensors.values())


def pretrained() -> nn.Module:
    """Return a net for images of 1×16×16 whose batch norms have seen something."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        net = nn.Sequential(
            *(nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)),
            *(nn.Conv2d(8, 12, 3, 2, 1), nn.BatchNorm2d(12), nn.ReLU(inplace=True)),
            nn.AdaptiveAvgPool2d(2),
        )
        net(torch.rand(32, 1, 16, 16))
    return net


class Tokens(nn.Module):
    """A small transformer: patches become tokens (N,T,D), and their mean is the feature."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 12, 4, 4)
        self.first = nn.TransformerEncoderLayer(12, 2, 16, dropout=0.0, batch_first=True)
        self.second = nn.TransformerEncoderLayer(12, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        return self.second(self.first(tokens)).mean(1)  # type: ignore[no-any-return]


def latent_learner(method: str = "er", freeze: str | None = "until:2", **changes: Any) -> Learner:
    """Return a learner that freezes a part of its net and takes milliseconds a batch."""
    options = small_options(method)
    options.pop("theta", None)
    if find_method(method).augment:
        options.pop("augment", None)
    return Learner(method, **options | {"net": pretrained(), "freeze": freeze} | changes)
