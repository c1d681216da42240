"""Dual view consistency (Gu et al., 2022): both views of an image predict its class and agree with a joint view.

With p_1, p_2 the class distributions of the raw and the augmented view, p_Q that of the joint head Q on both views'
logits, and p̄ a batch mean:
L = CE(both views) + w_b Σ_{v ∈ 1,2,Q} Σ_c p̄_v log p̄_v + w_d · mean |p_Q − p_1|, |p_Q − p_2|
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.augmentations.view import ViewAugmentation, augment_view
from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.heads import GrowingHead, GrowingLinear
from engram.base.model import LOGITS, Model, Parameters
from engram.base.rng import Randomness
from engram.base.settings import Count, Natural, NonNegative
from engram.schemes.labelled import LabelScheme

SMALLEST_PROBABILITY = 2.2e-16


def negative_entropy_of_mean(probabilities: Tensor) -> Tensor:
    """Return Σ p̄ log p̄ of the batch-mean distribution. It is smallest if all classes are predicted equally often."""
    mean = probabilities.mean(0).clamp_min(SMALLEST_PROBABILITY)
    return (mean * mean.log()).sum()


def dual_view_loss(
    first: Tensor, second: Tensor, joint: Tensor, labels: Tensor, balance: float = 1 / 3, agreement: float = 4.0
) -> Tensor:
    """Return the loss above, given the logits (B,C) of both views and of the joint head."""
    views = [first.softmax(1), second.softmax(1)]
    joint_view = joint.softmax(1)
    cross_entropy = F.cross_entropy(torch.cat([first, second]), labels.repeat(2))
    balances = torch.stack([negative_entropy_of_mean(p) for p in (*views, joint_view)]).sum()
    distance = torch.cat([(joint_view - p).abs() for p in views]).mean()
    return cross_entropy + balance * balances + agreement * distance


class JointHead(GrowingHead):
    """The joint head Q, from both views' logits to class logits.

    Its first input columns are initialized as those of a linear layer. Columns that are added later start at zero, so
    that they change no output.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.columns = nn.Parameter(torch.empty(hidden, 0))
        self.offset = nn.Parameter(torch.empty(hidden))
        self.output = GrowingLinear(hidden, 0)

    @torch.no_grad()
    def grow(self, classes: int, generator: torch.Generator) -> None:
        old = self.columns.data
        known = old.shape[1] // 2
        if classes > known:
            if known:
                zeros = old.new_zeros(len(old), classes - known)
                self.columns.data = torch.cat([old[:, :known], zeros, old[:, known:], zeros], dim=1)
            else:
                bound = 1 / math.sqrt(2 * classes)
                drawn = torch.empty(len(old), 2 * classes + 1).uniform_(-bound, bound, generator=generator).to(old)
                self.columns.data, self.offset.data = drawn[:, :-1].contiguous(), drawn[:, -1].contiguous()
            self.columns.grad = self.offset.grad = None
        self.output.grow(classes, generator)

    def forward(self, logits: Tensor) -> Tensor:
        out: Tensor = self.output(F.relu(F.linear(logits, self.columns, self.offset)))
        return out


class DualViewConsistency(LabelScheme):
    """Trains on two views of the stream and of the replay batch, both views in one forward pass.

    Args:
        replay: number of memory images replayed in one step.
        balance: weight of the batch-mean distributions' negative entropies.
        agreement: weight of the distance between the joint view's distribution and each view's.
        joint_width: hidden width of the joint head.
        learning_rate: learning rate of SGD on the net.
        augment: augmentation that makes the second view; as published, torchvision's color jitter, always on.
    """

    provides = frozenset({"logits", "replay"})

    def __init__(
        self,
        replay: Natural = 10,
        balance: NonNegative = 1 / 3,
        agreement: NonNegative = 4.0,
        joint_width: Count = 128,
        learning_rate: NonNegative = 0.1,
        augment: ViewAugmentation = ViewAugmentation(jitter=1.0, jitter_kind="multiplicative"),
    ) -> None:
        super().__init__(learning_rate)
        self.replay, self.balance, self.agreement = replay, balance, agreement
        self.joint_width, self.augment = joint_width, augment

    def build(self, model: Model, rng: Randomness) -> torch.optim.Optimizer:
        model.add_classifier(rng["init"])
        model.add_head("joint", lambda: JointHead(self.joint_width), rng["init"])
        return torch.optim.SGD(model.parameters(), lr=self.learning_rate)

    def replay_size(self, ctx: StepContext) -> int:
        return self.replay

    def loss(self, stream: Batch, replay: Batch | None, ctx: StepContext) -> Tensor:
        loss = self.stream_loss(stream, ctx)
        if replay is not None:
            loss = loss + self.stream_loss(replay, ctx)
        return loss

    def stream_loss(self, stream: Batch, ctx: StepContext, params: Parameters | None = None) -> Tensor:
        second = augment_view(stream.x, self.augment, ctx.rng["augment"])
        _, logits = ctx.model.outputs(torch.cat([stream.x, second]), LOGITS, params=params)
        first, second = logits.chunk(2)
        joint = ctx.model.head("joint")(torch.cat([first, second], dim=1))
        return dual_view_loss(first, second, joint, stream.y, self.balance, self.agreement)
