"""Nets of every allowed width are sound with two threads: a CPU kernel of torch corrupts memory in narrow layers."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from engram.nets import ReducedResNet18
from engram.nets.resnet import NarrowPointwise

DEBUGGING = Path("/usr/lib") / f"{platform.machine()}-linux-gnu" / "libc_malloc_debug.so.0"
"""Heeds MALLOC_CHECK_, which glibc itself does not since 2.34."""

TRAIN = """
import sys
import torch
from engram.nets import ReducedResNet18
torch.set_num_threads(2)
for width in map(int, sys.argv[1:]):
    net = ReducedResNet18(3, 32, width=width).to(memory_format=torch.channels_last)
    for count in (2, 20):
        net(torch.rand(count, 3, 32, 32)).sum().backward()
    wide = ReducedResNet18(1, 224, width=width).to(memory_format=torch.channels_last) if width in (8, 15) else None
    if wide is not None:
        wide(torch.rand(2, 1, 224, 224)).sum().backward()
    print(width, flush=True)
"""


@pytest.mark.parametrize("widths", [range(8, 13), range(13, 18), range(18, 25)], ids=str)
def test_every_width_trains_with_two_threads(widths: range) -> None:
    environment = os.environ | {"MALLOC_CHECK_": "3", "OMP_NUM_THREADS": "2"}
    if DEBUGGING.exists():
        environment["LD_PRELOAD"] = str(DEBUGGING)
    command = [sys.executable, "-c", TRAIN, *map(str, widths)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"died after width {done.stdout.split()[-1:]}: {done.stderr[-500:]}"
    assert done.stdout.split() == list(map(str, widths))


def test_the_narrow_convolution_computes_what_the_stock_one_does() -> None:
    """In the default layout, where the stock one is sound; values and gradients."""
    generator = torch.Generator().manual_seed(0)
    stock, ours = (kind(6, 12, 1, stride=2, bias=False) for kind in (nn.Conv2d, NarrowPointwise))
    ours.load_state_dict(stock.state_dict())
    for size in (8, 9):
        x = torch.rand(3, 6, size, size, generator=generator)
        inputs = [x.clone().requires_grad_() for _ in range(2)]
        outputs = [layer(each) for layer, each in zip((stock, ours), inputs, strict=True)]
        torch.testing.assert_close(*outputs)
        weight = torch.rand(outputs[0].shape, generator=generator)
        gradients = [
            torch.autograd.grad((output * weight).sum(), [each, layer.weight])
            for output, each, layer in zip(outputs, inputs, (stock, ours), strict=True)
        ]
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("width", range(8, 25))
def test_no_narrow_layer_uses_the_kernel_that_corrupts_memory(width: int) -> None:
    net = ReducedResNet18(3, 32, width=width)
    strided = [layer for layer in net.modules() if isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1)]
    assert len(strided) == 3
    assert all(isinstance(layer, NarrowPointwise) for layer in strided if layer.in_channels < 16)
