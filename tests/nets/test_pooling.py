import pytest
import torch
from torch.nn import functional as F

from engram.nets.pooling import halve


@pytest.mark.parametrize("size", [(8, 8), (5, 8), (8, 5), (7, 3), (2, 2)])
def test_halve_is_average_pooling_with_its_gradient(size):
    x = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(2, 3, size[0] // 2, size[1] // 2, dtype=torch.float64)
    expected = F.avg_pool2d(x, 2)
    torch.testing.assert_close(halve(x), expected)
    torch.testing.assert_close(
        torch.autograd.grad(halve(x), x, upstream)[0], torch.autograd.grad(expected, x, upstream)[0]
    )


@pytest.mark.parametrize("size", [(4, 6), (5, 3)])
def test_halve_is_differentiable_twice(size):
    x = torch.randn(1, 2, *size, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(halve, x)
    assert torch.autograd.gradgradcheck(halve, x)


def test_halve_keeps_any_layout_right():
    x = torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(0)).to(memory_format=torch.channels_last)
    torch.testing.assert_close(halve(x), F.avg_pool2d(x, 2))
