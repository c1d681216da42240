"""Gradients that do not train the net: to look one step ahead, and to compare images."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.model import Parameters


def label_gradient(batch: Batch, ctx: StepContext) -> Tensor:
    """Return the gradient of the mean label loss over all parameters as one vector, taken in eval mode."""
    parameters = [parameter for parameter in ctx.model.parameters() if parameter.requires_grad]
    with ctx.model.eval_mode():
        loss = F.cross_entropy(ctx.scheme.class_scores(batch.x, ctx), batch.y)
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return torch.cat(
        [
            torch.zeros_like(parameter).reshape(-1) if gradient is None else gradient.reshape(-1)
            for parameter, gradient in zip(parameters, gradients, strict=True)
        ]
    )


def virtual_step(stream: Batch, ctx: StepContext) -> Parameters:
    """Return the parameters after one step of plain SGD on the stream batch, without changing the net."""
    params = {
        name: parameter.detach().requires_grad_(parameter.requires_grad)
        for name, parameter in ctx.model.net.named_parameters()
    }
    moved = {name: parameter for name, parameter in params.items() if parameter.requires_grad}
    loss = ctx.scheme.stream_loss(stream, ctx, params)
    gradients = torch.autograd.grad(loss, list(moved.values()), allow_unused=True)
    rate = ctx.scheme.learning_rate
    stepped = {
        name: (parameter if gradient is None else parameter - rate * gradient).detach()
        for (name, parameter), gradient in zip(moved.items(), gradients, strict=True)
    }
    return params | stepped
