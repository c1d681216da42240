"""A storage policy of Avalanche that keeps summaries: the images of each experience pass through a `SummaryMemory`."""

from __future__ import annotations

from typing import Any

import torch
from avalanche.benchmarks.utils import _make_taskaware_tensor_classification_dataset
from avalanche.training.plugins import ReplayPlugin
from avalanche.training.storage_policy import ExemplarsBuffer
from torch.utils.data import DataLoader

from engram.base.errors import InputError
from engram.summary_memory import SummaryMemory


class SummaryBuffer(ExemplarsBuffer):  # type: ignore[misc]
    """A buffer of Avalanche whose images are those of a summarizing memory.

    After each experience, its images pass through the memory once, in batches. Images are floats in [0,1]: normalize in
    the net, not in the transforms of the data set.

    >>> from engram import SummaryMemory
    >>> from engram.avalanche import SummaryBuffer
    >>> SummaryBuffer(SummaryMemory(memory_size=100)).max_size
    100

    Args:
        memory: the memory; its limit is that of the buffer.
        batch: number of images in a batch.
        seed: seed of the order of the images of an experience.
    """

    def __init__(self, memory: SummaryMemory, batch: int = 10, seed: int = 0) -> None:
        super().__init__(memory.options["memory_size"] or 0)
        self.memory, self.batch = memory, batch
        self._order = torch.Generator().manual_seed(seed)
        self._tasks: dict[int, int] = {}

    def post_adapt(self, agent_state: Any, exp: Any) -> None:
        """Take in the images of an experience.

        Args:
            agent_state: the strategy; it is not needed.
            exp: the experience that was trained on.
        """
        for x, y, *tasks in DataLoader(exp.dataset, self.batch, shuffle=True, generator=self._order):
            self.memory.update(x, y)
            for label, task in zip(y.tolist(), tasks[0].tolist() if tasks else [0] * len(y), strict=True):
                self._tasks.setdefault(label, task)
        exported = self.memory.export_memory()
        labels = [int(label) for label in exported.labels]
        self.buffer = _make_taskaware_tensor_classification_dataset(
            exported.images,
            torch.tensor(labels),
            task_labels=[self._tasks[label] for label in labels],
        )

    def resize(self, strategy: Any, new_size: int) -> None:
        """Refuse another size; the limit of a memory is fixed."""
        if new_size != self.max_size:
            raise InputError(f"a buffer of summaries cannot change its size to {new_size}: make one of that size")


def summary_replay(memory: SummaryMemory, batch_size_mem: int | None = None) -> ReplayPlugin:
    """Return Avalanche's replay plugin with a summarizing memory as its storage policy.

    >>> from engram import SummaryMemory
    >>> from engram.avalanche import summary_replay
    >>> plugin = summary_replay(SummaryMemory(memory_size=100))  # for the argument `plugins` of a strategy
    >>> plugin.storage_policy.max_size
    100

    Args:
        memory: the memory.
        batch_size_mem: number of replayed images in a batch; as many as new ones if None.
    """
    buffer = SummaryBuffer(memory)
    return ReplayPlugin(mem_size=buffer.max_size, batch_size_mem=batch_size_mem, storage_policy=buffer)
