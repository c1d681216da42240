"""The learner's net: a backbone, named heads, and the ways to run them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from engram.base.heads import GrowingHead, GrowingLinear
from engram.base.initialization import materialize
from engram.base.part import Part
from engram.base.precision import Precision, computing_in, widened
from engram.base.undo import Undo

if TYPE_CHECKING:
    from engram.base.context import MemoryContext

LOGITS = "logits"
"""Name of the head whose outputs are the class logits."""

Parameters = dict[str, Tensor]
"""Parameters by name, to be used in place of the net's own."""


class Net(nn.Module):
    """A backbone and named heads on its features."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.heads = nn.ModuleDict()

    precision: Precision = "float32"
    """What it computes in."""

    def forward(self, x: Tensor, *heads: str) -> tuple[Tensor, ...]:
        """Return the features of the images, followed by the output of each named head."""
        with computing_in(self.precision, x.device):
            features: Tensor = self.backbone(x)
            outputs = [self.heads[head](features) for head in heads]
        return widened(features), *map(widened, outputs)


class Model(Part):
    """The learner's net φ.

    Methods that take `params` compute with those instead of the net's own parameters, and leave batch-norm statistics
    alone.

    Args:
        backbone: module that turns images into features.
        feature_width: number of features of an image.
        device: device of the net.
        precision: what the net computes in.
    """

    version: int
    """Increases whenever the net changes."""

    def __init__(
        self, backbone: nn.Module, feature_width: int, device: torch.device, precision: Precision = "float32"
    ) -> None:
        self.feature_width, self.version = feature_width, 0
        self.to_device(device)
        self.add_state("net", Net(backbone), count_as="net")
        self.net: Net
        self.net.precision = precision

    def features(self, x: Tensor, params: Parameters | None = None) -> Tensor:
        """Return the features of the images (N,D)."""
        return self.outputs(x, params=params)[0]

    def logits(self, x: Tensor, params: Parameters | None = None) -> Tensor:
        """Return the class logits of the images (N,classes)."""
        return self.outputs(x, LOGITS, params=params)[1]

    def outputs(self, x: Tensor, *heads: str, params: Parameters | None = None) -> tuple[Tensor, ...]:
        """Return the features and the outputs of the named heads, computed in one forward pass."""
        if params is None:
            return self.net(x, *heads)  # type: ignore[no-any-return]
        buffers = {name: buffer.clone() for name, buffer in self.net.named_buffers()}
        return torch.func.functional_call(self.net, params | buffers, (x, *heads))  # type: ignore[no-any-return]

    def head(self, name: str) -> nn.Module:
        """Return the head of that name."""
        return self.net.heads[name]

    def add_classifier(self, generator: torch.Generator) -> None:
        """Add the head behind `logits`, without any class yet."""
        self.add_head(LOGITS, lambda: GrowingLinear(self.feature_width, 0), generator)

    def add_head(self, name: str, build: Callable[[], nn.Module], generator: torch.Generator) -> None:
        """Build a head, initialize it from the generator, and add it under that name."""
        self.net.heads[name] = materialize(build, generator, self.device)

    def grow(self, classes: int, generator: torch.Generator) -> None:
        """Make room for `classes` classes in every head that has one output per class."""
        for head in self.net.heads.values():
            if isinstance(head, GrowingHead):
                head.grow(classes, generator)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield all parameters of the net."""
        return self.net.parameters()

    def remember(self) -> Undo:
        undo_state = super().remember()

        def undo() -> None:
            undo_state()
            self.version += 1

        return undo

    def check_restored(self, ctx: MemoryContext) -> None:
        if LOGITS in self.net.heads:
            logits = self.net.heads[LOGITS](torch.zeros(1, self.feature_width, device=self.device))
            if logits.shape[1] < ctx.classes_total:
                raise ValueError(f"its head has fewer outputs than the {ctx.classes_total} classes there are")

    @contextmanager
    def eval_mode(self) -> Iterator[None]:
        """Use running batch-norm statistics while inside, then return to the mode before."""
        training = self.net.training
        self.net.eval()
        try:
            yield
        finally:
            self.net.train(training)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Use eval mode and no gradients while inside."""
        with self.eval_mode(), torch.no_grad():
            yield
