"""The checks of tests/test_devices.py, run in a process of its own: torch must meet a new device before it trains.

python -m tests.device_checks float32|bf16 METHOD...
"""

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from engram import Learner, SummaryMemory
from engram.base import devices
from engram.methods import find_method
from engram.schemes import Untrained
from engram.testing import small_options, toy_stream
from tests.pretend_device import NAME, PretendTensor, casted, pretending, register

STREAM = list(toy_stream(2, 4))


def on_device(value: object) -> bool:
    return isinstance(value, PretendTensor)


def check_learner(method: str, folder: Path, precision: Any) -> None:
    """Train, store, summarize and answer, before and after being saved; then once more on the CPU."""
    average = {} if find_method(method).scheme is Untrained else {"average": 0.9}
    learner = Learner(method, device=NAME, precision=precision, **small_options(method) | average)
    for x, y in STREAM[:5]:
        learner.observe(x, y)
    assert all(on_device(weight) and weight.dtype == torch.float32 for weight in learner.model.parameters())
    assert on_device(learner.memory.read(learner.memory.filled()).x)
    assert on_device(learner.scores(STREAM[0][0]))
    learner.save(folder)
    restored = Learner.load(folder)
    for x, y in STREAM[5:]:
        restored.observe(x, y)
    restored.boundary()
    if restored.summarizer:
        assert restored.rounds > learner.rounds > 0, "nothing was summarized, so nothing was shown"
    assert all(on_device(weight) for weight in restored.model.parameters())
    assert len(restored.predict(STREAM[0][0])) == len(STREAM[0][0])
    elsewhere = Learner.load(folder, device="cpu")
    assert not any(on_device(weight) for weight in elsewhere.model.parameters())
    elsewhere.observe(*STREAM[-1])


def check_memory(folder: Path, precision: Any) -> None:
    """Update, summarize and sample, before and after being saved."""
    settings: Any = {"theta": {"width": 8}, "summarize": {"queue": 8, "interval": 2}}
    memory = SummaryMemory(memory_size=8, device=NAME, precision=precision, **settings)
    for x, y in STREAM:
        memory.update(x, y)
    assert memory.rounds > 0
    images, labels = memory.sample(3)
    assert on_device(images)
    assert on_device(labels)
    memory.save(folder)
    again = SummaryMemory.load(folder)
    again.update(*STREAM[0])
    assert on_device(again.sample(2)[0])


def main(precision: str, methods: list[str]) -> None:
    register()
    devices._NAME = re.compile(f"(auto|cpu|{NAME})(?::([0-9]+))?")
    devices.available_devices = lambda: ["cpu", NAME]
    with pretending(), tempfile.TemporaryDirectory() as folder:
        for number, method in enumerate(methods):
            print(method, flush=True)
            casted.clear()
            if method == "SummaryMemory":
                check_memory(Path(folder) / "memory", precision)
            else:
                check_learner(method, Path(folder) / str(number), precision)
            assert bool(casted) == (precision == "bf16"), f"{len(casted)} products were computed in bf16"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
