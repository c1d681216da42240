"""What version 0.1.0 saved loads and goes on exactly as that version went on.

`tests/data/v0.1` was written by 0.1.0: a learner with a net of its own and a memory by itself, both saved after seven
of twelve toy batches, and digests of what they were after all twelve.
"""

import hashlib
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from engram import Learner, SummaryMemory
from engram.testing import toy_stream

SAVED = Path(__file__).parents[1] / "data" / "v0.1"
EXPECTED = json.loads((SAVED / "expected.json").read_text())
STREAM = list(toy_stream(2, 6))
SAME_MACHINE = EXPECTED["torch"] == torch.__version__ and EXPECTED["cpu"] == torch.backends.cpu.get_cpu_capability()


def own_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(3))


def digest(tensors: list[torch.Tensor]) -> str:
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.numpy().tobytes())
    return found.hexdigest()


def test_a_learner_goes_on_as_the_version_before_did() -> None:
    learner = Learner.load(SAVED / "learner", net=own_net())
    assert learner.iteration == 7
    assert learner.settings["scheme"]["augment"].crop == "aligned", "what 0.1.0 did had no name yet"
    for x, y in STREAM[7:]:
        learner.observe(x, y)
    assert len(learner.predict(STREAM[0][0])) == 4
    if not SAME_MACHINE:
        pytest.skip("digests are of another torch or processor")
    assert learner.predict(STREAM[0][0]).tolist() == EXPECTED["predicted"]
    weights = [tensor for _, tensor in sorted(learner.model.net.state_dict().items())]
    assert digest([*weights, *learner.memory.records]) == EXPECTED["learner"]


def test_a_memory_goes_on_as_the_version_before_did() -> None:
    memory = SummaryMemory.load(SAVED / "memory")
    for x, y in STREAM[7:]:
        memory.update(x, y)
    assert memory.memory.used <= 1500
    if not SAME_MACHINE:
        pytest.skip("digests are of another torch or processor")
    assert digest(memory.memory.records) == EXPECTED["memory"]
