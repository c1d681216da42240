"""The summarizing memory by itself, for anybody's own training loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from engram.core import Context, Model, Retrieval, Scheme, choose
from engram.errors import InputError
from engram.keeper import Keeper
from engram.memory import Dynamic
from engram.methods import Settings, settings_of
from engram.nets import ConvNet
from engram.restoring import restored
from engram.state import Tree
from engram.summarize import StreamSummarizer
from engram.validation import Label


class SummaryMemory(Keeper):
    """Summaries of a stream within a limit, to replay from while you train a model of your own.

    >>> import torch
    >>> from engram import SummaryMemory
    >>> memory = SummaryMemory(memory_size=4, theta={"width": 8})
    >>> memory.update(torch.rand(8, 3, 16, 16), torch.tensor([0, 1] * 4))
    >>> x, y = memory.sample(3)
    >>> x.shape, y.shape
    (torch.Size([3, 3, 16, 16]), torch.Size([3]))

    Args:
        memory_size: images the memory holds (K); 100 if neither this nor `memory_bytes` is given.
        memory_bytes: bytes of encoded images the memory holds instead, such as "300KB"; as many images as fit.
        slots_per_class: slots each class may claim for its summary (k), or "auto": K over the classes seen.
        seed: of every random draw.
        boundary_gap: new classes that arrive within so many updates count as one change of task.
        codec: how images are stored: float32 (as they are), uint8, jpeg(QUALITY) or webp(QUALITY).
        keep_originals: keep the first image of each claimed slot, to look at beside its summary.
        device: where samples are put and summarizing runs.
        summarize: settings of the summarizer, by name.
        theta: settings of the summarizing net, by name; or a module of your own without batch norm, which is copied.
    """

    saved_as, fed_by = "memory", "update"

    def __init__(
        self,
        memory_size: int | None = None,
        *,
        memory_bytes: int | str | None = None,
        slots_per_class: int | Literal["auto"] = "auto",
        seed: int = 0,
        boundary_gap: int = 50,
        codec: str = "float32",
        keep_originals: bool = False,
        device: str = "cpu",
        summarize: Settings | None = None,
        theta: Settings | nn.Module | None = None,
    ) -> None:
        super().__init__(
            memory_size=memory_size,
            memory_bytes=memory_bytes,
            slots_per_class=slots_per_class,
            seed=seed,
            boundary_gap=boundary_gap,
            codec=codec,
            keep_originals=keep_originals,
            device=device,
        )
        settings = self._resolve(
            lambda nets: {
                "summarize": settings_of(StreamSummarizer, summarize),
                "theta": settings_of(ConvNet, nets["theta"]),
            },
            theta=theta,
        )
        self.policy, self.summarizer = Dynamic(), StreamSummarizer(**settings["summarize"])
        self._add_parts(policy=self.policy, summarizer=self.summarizer)

    def __len__(self) -> int:
        """Images in the memory."""
        return self._memory.size if self.image_shape else 0

    def update(self, x: Any, y: Any) -> None:
        """Take in one batch: images (N,C,H,W), float in [0,1] or uint8, and their labels, all int or all str."""
        self._keep(self._taken_in(x, y))

    def sample(self, count: int) -> tuple[Tensor, Tensor | list[Label]]:
        """Up to `count` distinct images, drawn uniformly, and their labels: a tensor of ints, or a list where they are
        strings, or beyond 64 bits.

        Both are empty before the first update, and `torch.cat` passes over them.
        """
        if count < 0:
            raise InputError(f"a sample of {count} images cannot be drawn: give a count")
        if not self.image_shape:
            return torch.zeros(0, device=self.device), torch.zeros(0, dtype=torch.int64, device=self.device)
        batch = self._memory.read(choose(count, self._memory.size, self.rng["replay"]))
        labels = [self.labels[index] for index in batch.y.tolist()]
        if all(isinstance(label, int) and -(1 << 63) <= label < 1 << 63 for label in self.labels):
            return batch.x, torch.tensor(labels, dtype=torch.int64, device=self.device)
        return batch.x, labels

    @classmethod
    def load(cls, path: str | Path, device: str | None = None, *, theta: nn.Module | None = None) -> SummaryMemory:
        """The memory saved at `path`, on the device it was on or the one given.

        A theta of your own is saved by its weights alone, so give one of the same shape to take them.
        """
        return cls.load_with_extra(path, device, theta=theta)[0]

    @classmethod
    def load_with_extra(
        cls, path: str | Path, device: str | None = None, *, theta: nn.Module | None = None
    ) -> tuple[SummaryMemory, Tree]:
        """The memory saved at `path`, and what was saved along with it."""
        return restored(cls, Path(path), device, {"theta": theta})

    def _context(self) -> Context:
        return Context(
            model=cast(Model, _Absent("model")),
            scheme=cast(Scheme, _Absent("scheme")),
            retrieval=cast(Retrieval, _Absent("retrieval")),
            memory=self._memory,
            rng=self.rng,
            classes=len(self.labels),
            classes_total=len(self.labels),
            iteration=self.iteration,
            slots_per_class=self._slots_per_class(),
            optimizer=cast(torch.optim.Optimizer, _Absent("optimizer")),
            clock=self.clock,
        )


class _Absent:
    """What a memory by itself does not have; neither its policy nor its summarizer asks for it."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a memory by itself has no {self._what}")
