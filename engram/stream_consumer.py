"""What a learner and a memory by itself have in common: both take in a stream and keep a memory of it."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from engram.base.batch import Batch, as_float
from engram.base.context import TIMED, Hooks, MemoryContext
from engram.base.devices import using_threads
from engram.base.errors import InputError, NotReadyError
from engram.base.exclusive import ThreadLock, exclusive
from engram.base.initialization import materialize
from engram.base.interfaces import StoreReport, Summarizer, SummarizingNet
from engram.base.part import FOOTPRINT, Part
from engram.base.precision import Precision, computing_in, resolve_precision
from engram.base.rng import Randomness
from engram.base.settings import as_plain_data
from engram.base.undo import Undo, remember_module
from engram.base.validation import Label, check_images, check_labels
from engram.memory import (
    ExportedMemory,
    Store,
    divide_total,
    exported_from,
    fill_store,
    lower_quality,
    make_store,
    most_copies,
)
from engram.nets import ConvNet, custom_theta, require_theta
from engram.options import CommonOptions
from engram.persistence.checkpoint import write_checkpoint
from engram.persistence.restore import environment
from engram.persistence.state import Tree

C = TypeVar("C", bound=MemoryContext)


class StreamConsumer(Part, Generic[C]):
    """Checks what arrives, tells classes apart, notices changes of task, stores within a limit and summarizes.

    It can be saved and restored exactly. Several threads may use it: its methods wait for each other. Subclasses add
    what happens with a batch before it is stored.

    Args:
        options: all options, resolved.
    """

    saved_as: ClassVar[str]
    """Name of its entry in a checkpoint, and what messages call it."""
    batch_method: ClassVar[str]
    """Name of the method that takes in a batch."""
    summarizer: Summarizer | None
    settings: dict[str, dict[str, Any]]
    """All settings of each part, by role."""
    custom_nets: dict[str, nn.Module]
    """Nets that the caller gave in place of ours, by role."""

    def __init__(self, options: CommonOptions) -> None:
        self.options = options
        self.lock = ThreadLock()
        self.to_device(torch.device(options["device"]))
        self.image_shape: tuple[int, int, int] | None = None
        self.parts: dict[str, Hooks[C]] = {}
        self.add_state("rng", Randomness(options["seed"]))
        self.add_state("labels", [])
        self.add_state("iteration", 0)
        self.add_state("last_boundary", 0)
        self.add_state("explicit_boundaries", False)
        self.add_state("seconds", dict.fromkeys(TIMED, 0.0))
        if options["total_bytes"] is not None:
            self.add_state("reserve", 0)
            self.reserve: int
            """Bytes set aside for queue and working copies: the most they needed so far."""
        self.rng: Randomness
        self.labels: list[Label]
        """The classes seen, in order of first arrival."""
        self.iteration: int
        """Number of batches taken in."""
        self.last_boundary: int
        self.explicit_boundaries: bool
        self.seconds: dict[str, float]
        """Seconds spent, by what they were spent on."""

    @property
    def memory(self) -> Store:
        """The memory: its images, labels, which slots are claimed and which hold summaries."""
        self._require_observed("there is no memory")
        return self._memory

    @property
    def precision(self) -> Precision:
        """What nets compute in."""
        return resolve_precision(self.options["precision"], str(self.device))

    @property
    def rounds(self) -> int:
        """Number of summarizing rounds so far."""
        return self.summarizer.rounds if self.summarizer else 0

    @exclusive
    def boundary(self) -> None:
        """Say that a task has ended. This is never needed.

        Once it was said, boundaries are no longer inferred from new classes. Saying it again before the next batch
        changes nothing.
        """
        with self._whole_batch():
            self.explicit_boundaries = True
            if self.iteration > self.last_boundary:
                self._pass_boundary()
                self.divide_total()

    @exclusive
    def tell_if_not_summarized(self) -> None:
        """Log a warning, once, if the stream is over and nothing could be summarized."""
        if self.summarizer and self.image_shape:
            self.summarizer.tell_if_idle(self._context())

    @exclusive
    def footprint(self) -> Counter[str]:
        """Return the bytes held, by what holds them; `total` is their sum."""
        counted = Counter({**dict.fromkeys(FOOTPRINT, 0), **super().footprint()})
        counted["total"] = sum(counted.values())
        return counted

    @exclusive
    def export_memory(self) -> ExportedMemory:
        """Return what the memory holds, to be written to a folder or adopted by another learner or memory."""
        return exported_from(self.memory, self.labels)

    @exclusive
    def adopt(self, exported: ExportedMemory) -> None:
        """Begin with the memory of another learner or memory.

        This is possible before anything was observed, and if all of it fits. Its classes count as past ones: the next
        new class is a change of task.
        """
        if self.image_shape is not None:
            raise InputError(f"this {self.saved_as} has observed something already: a memory is adopted at the start")
        trial = self._new_memory(exported.image_shape)
        trial.limit.require_room(exported.encoded(trial))
        with self._whole_batch():
            self._build(exported.image_shape)
            self._add_classes(list(dict.fromkeys(exported.labels)))
            self.divide_total()
            self._memory.limit.require_room(exported.encoded(trial))
            labels = self._batch(exported.images, exported.labels).y.tolist()
            fill_store(self._memory, exported, labels, self.rng["memory"], claims=self._provides("claims"))
            self.parts["policy"].after_adopting(self._memory)
            self.last_boundary = -self.options["boundary_gap"]
            self.divide_total()

    @exclusive
    def save(self, path: str | Path, extra: Tree = None) -> None:
        """Save everything that is needed to continue exactly from here.

        Args:
            path: folder of the checkpoint; the save before is kept there too.
            extra: numbers, strings, lists, dicts and tensors of your own; `load_with_extra` returns them. What could
                not be loaded again is refused.
        """
        self.require_finite()
        tree = {"config": self.config(), "image_shape": self.image_shape, "state": self.state()}
        tree["stored_shape"] = self._memory.shape if self.image_shape else None
        with using_threads(self.options["threads"]):
            facts = environment()
        write_checkpoint(Path(path).expanduser(), {"environment": facts, self.saved_as: tree, "extra": extra})

    def config(self) -> dict[str, Any]:
        """Return the arguments that make this object again, with every setting written out."""
        return dict(self.options) | {role: as_plain_data(own) for role, own in self.settings.items()}

    @classmethod
    def arguments_from(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that make the object again whose `config()` was saved."""
        return dict(config)

    def remember(self) -> Undo:
        undo_state, image_shape = super().remember(), self.image_shape
        undo_nets = [] if image_shape else [remember_module(net) for net in self.custom_nets.values()]

        def undo() -> None:
            undo_state()
            self.image_shape = image_shape
            for undo_net in undo_nets:
                undo_net()

        return undo

    @contextmanager
    def _whole_batch(self) -> Iterator[None]:
        """Undo everything that happened inside if it ends in an error, so that no batch is learned by half."""
        undo = self.remember()
        try:
            yield
        except BaseException:
            undo()
            raise

    @contextmanager
    def clock(self, name: str) -> Iterator[None]:
        """Book the time spent inside under a name."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start

    def _take_nets(self, nets: Mapping[str, Any]) -> dict[str, Any]:
        """Keep copies of the modules among `nets` for `_build`; return the others, which are settings."""
        self.custom_nets = {name: copy.deepcopy(net) for name, net in nets.items() if isinstance(net, nn.Module)}
        if "theta" in self.custom_nets:
            require_theta(self.custom_nets["theta"])
        return {name: net for name, net in nets.items() if name not in self.custom_nets}

    def _name_custom_nets(self) -> None:
        """Write the names of custom nets in place of their settings."""
        for name, net in self.custom_nets.items():
            if name not in self.settings:
                raise InputError(f"this method has no {name}: it takes {', '.join(self.settings)}")
            self.settings[name] = {"own": type(net).__name__}

    def _add_parts(self, **parts: Any) -> None:
        self.parts = {name: part for name, part in parts.items() if part is not None}
        for name, part in self.parts.items():
            self.add_state(name, part)

    def _require_observed(self, consequence: str) -> None:
        if self.image_shape is None:
            raise NotReadyError(
                f"this {self.saved_as} has not seen anything yet, so {consequence}: call {self.batch_method} first"
            )

    def _prepare_batch(self, x: Any, y: Any) -> Batch:
        """Check a batch, make room for its new classes, and return it."""
        images = check_images(x, self.image_shape)
        labels = check_labels(y, len(images), self.labels)
        new = [label for label in dict.fromkeys(labels) if label not in self.labels]
        if self.image_shape is None:
            self._build((int(images.shape[1]), int(images.shape[2]), int(images.shape[3])))
        if new:
            self._add_classes(new)
        return self._batch(images, labels)

    def _store_batch(self, stream: Batch) -> None:
        """Store the batch, and summarize if a round is due."""
        ctx = self._context()
        if self.summarizer:
            with self.clock("summarize"):
                self.summarizer.push(stream, ctx)
        with self.clock("store"):
            report = self._offer(stream, ctx)
            lower_quality(self._memory)
        if self.summarizer:
            with computing_in(self.precision, self.device):
                self.summarizer.after_store(stream, report, ctx)
        self.iteration += 1
        self.divide_total()

    def _build(self, image_shape: tuple[int, int, int]) -> None:
        """Make everything that depends on the shape of the images."""
        store = self._new_memory(image_shape)
        if self.summarizer:
            self.summarizer.build(self._new_theta(image_shape))
        self.add_state("_memory", store)
        self._memory: Store
        self.image_shape = image_shape

    def _new_theta(self, image_shape: tuple[int, int, int]) -> SummarizingNet:
        channels, size, _ = image_shape
        if "theta" in self.custom_nets:
            return custom_theta(self.custom_nets["theta"], image_shape, self.rng["theta"], self.device)
        return materialize(lambda: ConvNet(channels, size, **self.settings["theta"]), self.rng["theta"], self.device)

    def _new_memory(self, image_shape: tuple[int, int, int]) -> Store:
        return make_store(self.options, image_shape, self._provides("stored logits"))

    def divide_total(self) -> None:
        """Give the memory what the rest leaves of `total_bytes`; images that no longer fit leave."""
        if self.options["total_bytes"] is not None and self.image_shape is not None:
            if self.summarizer:
                self.reserve = max(self.reserve, self.summarizer.most_bytes(self._context()))
            divide_total(self._memory, self.footprint, self.reserve, self.options)

    def _add_classes(self, new: list[Label]) -> None:
        """Add classes: pass a boundary if one is due, then let every part make room for them."""
        if self.iteration - self.last_boundary >= self.options["boundary_gap"] and not self.explicit_boundaries:
            self._pass_boundary()
        first = len(self.labels)
        self.labels = [*self.labels, *new]
        self._grow()
        ctx = self._context()
        for part in self.parts.values():
            part.on_new_classes(list(range(first, len(self.labels))), ctx)

    def _grow(self) -> None:
        """Make room for `labels` in what is not a part."""

    def _pass_boundary(self) -> None:
        self.last_boundary = self.iteration
        ctx = self._context()
        for part in self.parts.values():
            part.on_boundary(ctx)

    def _context(self) -> C:
        raise NotImplementedError

    def _offer(self, stream: Batch, ctx: C) -> StoreReport:
        """Offer the batch to the memory."""
        raise NotImplementedError

    def _provides(self, capability: str) -> bool:
        """Return whether one of its parts provides this."""
        return any(capability in part.provides for part in self.parts.values())

    def _memory_context(self) -> dict[str, Any]:
        """Return what every context of this consumer holds."""
        return {
            "memory": self._memory,
            "rng": self.rng,
            "classes": len(self.labels),
            "iteration": self.iteration,
            "slots_per_class": self._slots_per_class(),
            "clock": self.clock,
        }

    def _slots_per_class(self) -> int:
        """Return the slots a class may claim now (k)."""
        chosen = self.options["slots_per_class"]
        if chosen is not None and chosen != "auto":
            return chosen
        slots = self._memory.capacity
        if self.summarizer and self.options["total_bytes"] is not None:
            slots = min(slots, most_copies(int(self.options["total_bytes"]), self._memory.pixels))
        return max(1, slots // max(1, len(self.labels)))

    def _batch(self, images: Tensor, labels: list[Label]) -> Batch:
        index = {label: position for position, label in enumerate(self.labels)}
        y = torch.tensor([index[label] for label in labels], device=self.device)
        return Batch(as_float(images.to(self.device)), y, images if images.dtype == torch.uint8 else None)
