"""The checks of tests/test_devices.py, run in a process of its own: torch must meet a new device before it trains.

python -m tests.device_checks METHOD...
"""

import re
import sys
import tempfile
from pathlib import Path

from engram import Learner, SummaryMemory
from engram.base import devices
from engram.testing import small_options, toy_stream
from tests.pretend_device import NAME, PretendTensor, pretending, register

STREAM = list(toy_stream(2, 4))


def on_device(value: object) -> bool:
    return isinstance(value, PretendTensor)


def check_learner(method: str, folder: Path) -> None:
    """Train, store, summarize and answer, before and after being saved; then once more on the CPU."""
    learner = Learner(method, device=NAME, **small_options(method) | {"average": 0.9})
    for x, y in STREAM[:5]:
        learner.observe(x, y)
    assert all(on_device(weight) for weight in learner.model.parameters())
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


def check_memory(folder: Path) -> None:
    """Update, summarize and sample, before and after being saved."""
    memory = SummaryMemory(memory_size=8, device=NAME, theta={"width": 8}, summarize={"queue": 8, "interval": 2})
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


def main(methods: list[str]) -> None:
    register()
    devices._NAME = re.compile(f"(auto|cpu|{NAME})(?::([0-9]+))?")
    devices.available_devices = lambda: ["cpu", NAME]
    with pretending(), tempfile.TemporaryDirectory() as folder:
        for number, method in enumerate(methods):
            print(method, flush=True)
            if method == "SummaryMemory":
                check_memory(Path(folder) / "memory")
            else:
                check_learner(method, Path(folder) / str(number))


if __name__ == "__main__":
    main(sys.argv[1:])
