"""Import Avalanche beside the CPU build of torch, where operators of torchvision may be missing."""

from typing import Any

import pytest
import torch


@pytest.fixture(scope="session")
def avalanche() -> Any:
    """Avalanche, or a skip if it is not installed. Avalanche uses none of the operators that are passed over."""
    register = torch.library.register_fake

    def tolerant(name: Any, *others: Any, **facts: Any) -> Any:
        known = not str(name).startswith("torchvision::")
        return register(name, *others, **facts) if known else lambda function: function

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torch.library, "register_fake", tolerant)
        return pytest.importorskip("avalanche")
