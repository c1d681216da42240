"""Where torchvision, timm or transformers are installed, a learner goes on above frozen modules of theirs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from engram import Learner
from tests.helpers import toy_images
from tests.latents.nets import bits

SIZE = 32


def of_torchvision() -> nn.Module:
    models = pytest.importorskip("torchvision.models", exc_type=(ImportError, RuntimeError))
    net = models.resnet18(weights=None)
    net.fc = nn.Identity()
    return net


def of_timm() -> nn.Module:
    timm = pytest.importorskip("timm", exc_type=(ImportError, RuntimeError))
    return timm.create_model("vit_tiny_patch16_224", pretrained=False, img_size=SIZE, patch_size=8, num_classes=0)


class Pooled(nn.Module):
    """Gives the pooled features of a Hugging Face model as one tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """Return features (N,D)."""
        features: Tensor = self.model(images).pooler_output
        return features.flatten(1)


def of_hugging_face() -> nn.Module:
    hub = pytest.importorskip("transformers", exc_type=(ImportError, RuntimeError))
    return Pooled(hub.ResNetModel(hub.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])))


CASES = [(of_torchvision, "until:layer3"), (of_timm, "until:blocks.8"), (of_hugging_face, "all")]


@pytest.mark.parametrize(("build", "freeze"), CASES, ids=["torchvision", "timm", "transformers"])
def test_a_learner_goes_on_above_a_frozen_module(build: Callable[[], nn.Module], freeze: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = build()
    learner = Learner("er-ema", net=net, freeze=freeze, memory_bytes="200KB")
    images, labels = rgb([0, 1] * 4), ["cup", "spoon"] * 4
    learner.observe(images, labels)
    assert learner.front is not None
    frozen = bits(learner.front.net)
    learner.observe(images, labels)
    assert bits(learner.front.net) == frozen
    assert learner.memory.size > 0
    learner.save(tmp_path / "saved")
    again = Learner.load(tmp_path / "saved", net=build())
    np.testing.assert_array_equal(again.predict_proba(images), learner.predict_proba(images))


def rgb(labels: list[int]) -> np.ndarray[Any, Any]:
    """Return toy images in three channels and in the size that the modules take."""
    gray = toy_images(labels, 0)
    return np.repeat(np.repeat(np.repeat(gray, 3, axis=1), 2, axis=2), 2, axis=3)
