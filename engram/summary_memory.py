"""The summarizing memory by itself, for a training loop of your own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from engram.base.batch import Batch, choose
from engram.base.context import MemoryContext
from engram.base.devices import using_threads
from engram.base.errors import InputError
from engram.base.exclusive import exclusive
from engram.base.interfaces import StoreReport
from engram.base.settings import Settings, resolve
from engram.base.validation import Label
from engram.memory import Dynamic
from engram.nets import ConvNet
from engram.options import CommonOptions, describe_limit, resolve_options
from engram.persistence.restore import restored
from engram.persistence.state import Tree
from engram.stream_consumer import StreamConsumer
from engram.summarize import StreamSummarizer


class SummaryMemory(StreamConsumer[MemoryContext]):
    """Summaries of a stream within a limit, to replay from while you train a model of your own.

    Examples:
        >>> import torch
        >>> from engram import SummaryMemory
        >>> memory = SummaryMemory(memory_size=4, theta={"width": 8})
        >>> memory.update(torch.rand(8, 3, 16, 16), torch.tensor([0, 1] * 4))
        >>> x, y = memory.sample(3)
        >>> x.shape, y.shape
        (torch.Size([3, 3, 16, 16]), torch.Size([3]))

    Args:
        summarize: settings of the summarizer, by name.
        theta: settings of the summarizing net, by name; or a module of your own without batch norm, which is copied.
        options: `MemoryOptions` and `ComputeOptions`, by name: memory_size, memory_bytes, codec, seed, device, ...
    """

    saved_as, batch_method = "memory", "update"

    def __init__(
        self,
        *,
        summarize: Settings | None = None,
        theta: Settings | nn.Module | None = None,
        **options: Unpack[CommonOptions],
    ) -> None:
        super().__init__(resolve_options(CommonOptions, options))
        nets = self._take_nets({"theta": theta})
        self.settings = {
            "summarize": resolve(StreamSummarizer, summarize or {}, "summarize."),
            "theta": resolve(ConvNet, nets.get("theta") or {}, "theta."),
        }
        self._name_custom_nets()
        self.policy, self.summarizer = Dynamic(), StreamSummarizer(**self.settings["summarize"])
        self._add_parts(policy=self.policy, summarizer=self.summarizer)

    def __repr__(self) -> str:
        seen = f"{self.iteration} batches, {len(self.labels)} classes seen"
        return f"SummaryMemory({describe_limit(self.options)}: {seen}, {len(self)} images, on {self.device})"

    def __len__(self) -> int:
        """Return the number of images in the memory."""
        return self._memory.size if self.image_shape else 0

    @exclusive
    def update(self, x: Any, y: Any) -> None:
        """Take in one batch: images (N,C,H,W), float in [0,1] or uint8, and their labels, all int or all str.

        If it raises, the memory is as it was before.
        """
        with using_threads(self.options["threads"]), self._whole_batch():
            self._store_batch(self._prepare_batch(x, y))

    @exclusive
    def sample(self, count: int) -> tuple[Tensor, Tensor | list[Label]]:
        """Draw up to `count` distinct images uniformly and return them with their labels.

        Labels are a tensor of integers; a list if they are strings or do not fit 64 bits. Both are empty before the
        first update, and `torch.cat` passes over them.
        """
        if count < 0:
            raise InputError(f"count is {count}: need a whole number of at least 0")
        if not self.image_shape:
            return torch.zeros(0, device=self.device), torch.zeros(0, dtype=torch.int64, device=self.device)
        batch = self._memory.read(choose(count, self._memory.size, self.rng["replay"]))
        labels = [self.labels[index] for index in batch.y.tolist()]
        if all(isinstance(label, int) and -(1 << 63) <= label < 1 << 63 for label in self.labels):
            return batch.x, torch.tensor(labels, dtype=torch.int64, device=self.device)
        return batch.x, labels

    @classmethod
    def load(cls, path: str | Path, device: str | None = None, *, theta: nn.Module | None = None) -> SummaryMemory:
        """Return the memory saved at `path`, on the device it was on or on the one given.

        Of a theta of your own only the weights are saved, so give one of the same shape to take them.
        """
        return cls.load_with_extra(path, device, theta=theta)[0]

    @classmethod
    def load_with_extra(
        cls, path: str | Path, device: str | None = None, *, theta: nn.Module | None = None
    ) -> tuple[SummaryMemory, Tree]:
        """Return the memory saved at `path`, and the extra that was saved along with it."""
        return restored(cls, Path(path).expanduser(), device, {"theta": theta})

    def _context(self) -> MemoryContext:
        return MemoryContext(classes_total=len(self.labels), **self._memory_context())

    def _offer(self, stream: Batch, ctx: MemoryContext) -> StoreReport:
        return self.policy.store(stream, ctx)
