"""The memory as a storage policy of the real Avalanche."""

import doctest
from typing import Any

import pytest
import torch
from torch import nn

from engram import InputError, SummaryMemory
from tests.helpers import SMALL_THETA, toy_images


def benchmark() -> Any:
    """Two experiences with two classes each."""
    from avalanche.benchmarks import tensors_benchmark

    def experience(first: int, seed: int, count: int) -> Any:
        labels = [first, first + 1] * count
        return torch.from_numpy(toy_images(labels, seed)).float() / 255, torch.tensor(labels)

    return tensors_benchmark(
        train_tensors=[experience(0, 0, 20), experience(2, 1, 20)],
        test_tensors=[experience(0, 2, 5), experience(2, 3, 5)],
        task_labels=[0, 0],
    )


def test_a_strategy_replays_summaries(avalanche: Any) -> None:
    from avalanche.training import Naive

    from engram.avalanche import summary_replay

    memory = SummaryMemory(memory_size=8, **SMALL_THETA)
    plugin = summary_replay(memory)
    net = nn.Sequential(nn.Flatten(), nn.Linear(256, 4))
    strategy = Naive(
        model=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.01),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=10,
        plugins=[plugin],
        evaluator=lambda: _silent(),
    )
    seen: list[set[int]] = []
    for experience in benchmark().train_stream:
        strategy.train(experience)
        seen.append(set(memory.labels))
    assert seen == [{0, 1}, {0, 1, 2, 3}]
    assert memory.iteration == 8, "each image passes through the memory once"
    assert memory.rounds > 0
    buffer = plugin.storage_policy.buffer
    assert len(buffer) == len(memory) == 8
    exported = memory.export_memory()
    for (x, y, task), image, label in zip(buffer, exported.images, exported.labels, strict=True):
        assert torch.equal(x, image)
        assert (int(y), int(task)) == (label, 0)


def _silent() -> Any:
    from avalanche.training.plugins import EvaluationPlugin

    return EvaluationPlugin(loggers=[])


def test_the_limit_is_that_of_the_memory(avalanche: Any) -> None:
    from engram.avalanche import SummaryBuffer

    buffer = SummaryBuffer(SummaryMemory(memory_size=8))
    assert buffer.max_size == 8
    buffer.resize(None, 8)
    with pytest.raises(InputError, match="cannot change its size to 9"):
        buffer.resize(None, 9)


def test_the_examples_of_the_reference_run(avalanche: Any) -> None:
    from engram.avalanche import storage

    failed, attempted = doctest.testmod(storage)
    assert not failed
    assert attempted > 5
