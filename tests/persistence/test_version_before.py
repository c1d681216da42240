"""What version 0.1.0 saved loads and goes on exactly as that version went on.

`tests/data/v0.1` was written by 0.1.0: a learner with a net of its own and a memory by itself, both saved after seven
of twelve toy batches, and digests of what they were after all twelve.
"""

import hashlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
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


def test_a_memory_of_whole_webp_files_goes_on_with_smaller_records() -> None:
    """0.1.0 kept each image as a whole WebP file; records are written without its container now."""
    memory = SummaryMemory.load(SAVED / "memory")
    images = memory.memory.read(memory.memory.filled()).x
    before = {bytes(record.tolist()): image for record, image in zip(memory.memory.records, images, strict=True)}
    assert all(record.startswith(b"RIFF") for record in before)
    decoded = [torch.from_numpy(np.asarray(Image.open(io.BytesIO(record)).convert("L"))) for record in before]
    assert all(torch.equal(image[0], pixels / 255) for image, pixels in zip(before.values(), decoded, strict=True))
    for x, y in STREAM[7:]:
        memory.update(x, y)
    records = [bytes(record.tolist()) for record in memory.memory.records]
    added = [record for record in records if record not in before]
    assert added
    assert not any(record.startswith(b"RIFF") for record in added)
    assert sum(map(len, records)) <= 1500
