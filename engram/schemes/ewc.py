"""EWC++: parameters that mattered to past tasks are pulled back to their old values   (Chaudhry et al., 2018).

L = CE(stream) + λ Σ F̃ (φ − φ*)²
F is a running mean of squared gradients. At every n-th step of a task, F ← (1−a) F + a/n · Q, where Q sums the squares
of the steps since the last such update. As in the released code, the step's own squares join the next Q.
At a boundary F̃ = (F − min) / (max − min + 1e-32) over all parameters, and φ* = φ.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.errors import InputError
from engram.base.model import Model
from engram.base.rng import Randomness
from engram.base.settings import Count, NonNegative, Share
from engram.schemes.labelled import LabelScheme, label_loss


class ElasticWeightConsolidation(LabelScheme):
    """Trains on the stream, with a penalty from the first boundary on. Outputs of later classes are not penalized.

    The largest F̃ is 1, so plain SGD diverges from λ ≥ 1/learning_rate on: such a λ is refused.

    Args:
        strength: weight of the penalty (λ). The paper does not give it; the default is ours.
        fisher_interval: steps between updates of the running Fisher information (n).
        fisher_share: weight of the newest squares in that update (a).
        learning_rate: learning rate of SGD on the net.
    """

    def __init__(
        self,
        strength: NonNegative = 1.0,
        fisher_interval: Count = 50,
        fisher_share: Share = 0.9,
        learning_rate: NonNegative = 0.1,
    ) -> None:
        if strength * learning_rate >= 1:
            raise InputError(
                f"strength {strength} diverges at learning rate {learning_rate}: a step would overshoot the parameters "
                f"it holds; choose less than {1 / learning_rate:g}"
            )
        super().__init__(learning_rate)
        self.strength, self.fisher_interval, self.fisher_share = strength, fisher_interval, fisher_share
        self.add_state("steps", 0)
        for name in ("squares", "fisher", "importance", "anchor"):
            self.add_state(name, {}, count_as="snapshots")
        self.steps: int
        """Steps since the last boundary."""
        self.squares: dict[str, Tensor]
        self.fisher: dict[str, Tensor]
        self.importance: dict[str, Tensor]
        """F̃, by parameter; empty before the first boundary."""
        self.anchor: dict[str, Tensor]
        """φ*"""

    def build(self, model: Model, rng: Randomness) -> torch.optim.Optimizer:
        optimizer = super().build(model, rng)
        self.squares = {name: torch.zeros_like(p, requires_grad=False) for name, p in model.net.named_parameters()}
        self.fisher = {name: value.clone() for name, value in self.squares.items()}
        return optimizer

    def on_new_classes(self, new: list[int], ctx: StepContext) -> None:
        for kept in (self.squares, self.fisher, self.importance, self.anchor):
            for name, parameter in ctx.model.net.named_parameters():
                if name in kept and kept[name].shape != parameter.shape:
                    rows = kept[name].new_zeros(len(parameter) - len(kept[name]), *parameter.shape[1:])
                    kept[name] = torch.cat([kept[name], rows])

    def check_restored(self, ctx: StepContext) -> None:
        expected = {name: (value.dtype, value.shape) for name, value in ctx.model.net.named_parameters()}
        for kept in (self.squares, self.fisher, self.importance, self.anchor):
            empty = not kept and kept is not self.squares and kept is not self.fisher
            if not empty and {name: (value.dtype, value.shape) for name, value in kept.items()} != expected:
                raise ValueError("what it keeps of each parameter does not fit the net's parameters")
        if bool(self.importance) != bool(self.anchor):
            raise ValueError("importances without the parameters they are of cannot be")

    def on_boundary(self, ctx: StepContext) -> None:
        self.steps = 0
        self.importance = normalized(self.fisher)
        self.anchor = {name: p.detach().clone() for name, p in ctx.model.net.named_parameters()}

    def loss(self, stream: Batch, replay: Batch | None, ctx: StepContext) -> Tensor:
        loss = label_loss(stream, ctx)
        if self.importance:
            parameters = dict(ctx.model.net.named_parameters())
            penalties = [
                (importance * (parameters[name] - self.anchor[name]).square()).sum()
                for name, importance in self.importance.items()
            ]
            loss = loss + self.strength * torch.stack(penalties).sum()
        return loss

    @torch.no_grad()
    def after_step(self, ctx: StepContext) -> None:
        self.steps += 1
        if self.steps % self.fisher_interval == 0:
            for name, squares in self.squares.items():
                self.fisher[name].mul_(1 - self.fisher_share).add_(
                    squares, alpha=self.fisher_share / self.fisher_interval
                )
                squares.zero_()
        for name, parameter in ctx.model.net.named_parameters():
            if parameter.grad is not None:
                self.squares[name] += parameter.grad.square()


def normalized(fisher: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return F̃: the Fisher information scaled to [0,1] over all parameters together."""
    low = min(float(values.min()) for values in fisher.values() if values.numel())
    high = max(float(values.max()) for values in fisher.values() if values.numel())
    return {name: (values - low) / (high - low + 1e-32) for name, values in fisher.items()}
