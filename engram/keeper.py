"""What keeps a memory of a stream: a learner does, and so does a memory for somebody's own training loop."""

from __future__ import annotations

import copy
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from engram.checkpoint import write_checkpoint
from engram.core import TIMED, Batch, Context, Part, Policy, Randomness, Summarizer, SummarizingNet, as_float
from engram.errors import InputError, NotReadyError, whole_number
from engram.initialise import materialise
from engram.memory import ExportedMemory, Store, draw_priority, exported_from, limited_store, parse_codec
from engram.methods import Settings, plain
from engram.nets import ConvNet, own_theta, require_theta
from engram.restoring import environment
from engram.sizes import parse_bytes
from engram.state import Tree
from engram.validation import Label, check_images, check_labels

FOOTPRINT = (
    "images",
    "labels",
    "originals",
    "queue",
    "working_copies",
    "net",
    "averaged",
    "theta",
    "optimizer",
    "snapshots",
    "bookkeeping",
)

DEFAULT_MEMORY_SIZE = 100


class Keeper(Part):
    """Checks what arrives, tells classes apart, notices changes of task, stores within a limit and summarizes; can be
    saved and restored exactly. What trains on the way is for those who extend it."""

    saved_as: ClassVar[str]
    """What a checkpoint of it is called."""
    fed_by: ClassVar[str]
    """The method that takes a batch in."""
    policy: Policy
    summarizer: Summarizer | None
    settings: dict[str, dict[str, Any]]
    """Of each part, by name."""
    own_nets: dict[str, nn.Module]
    """The caller's, in place of ours."""

    def __init__(
        self,
        *,
        memory_size: int | None,
        memory_bytes: int | str | None,
        slots_per_class: int | Literal["auto"],
        seed: int,
        boundary_gap: int,
        codec: str,
        keep_originals: bool,
        device: str,
    ) -> None:
        if memory_size is not None and memory_bytes is not None:
            raise InputError("memory_size and memory_bytes both limit the memory: give one of them")
        if memory_size is None and memory_bytes is None:
            memory_size = DEFAULT_MEMORY_SIZE
        self.memory_size = None if memory_size is None else whole_number("memory_size", memory_size, 1)
        self.memory_bytes = None if memory_bytes is None else parse_bytes(memory_bytes)
        self.slots_per_class: int | Literal["auto"] = (
            "auto" if slots_per_class == "auto" else whole_number("slots_per_class", slots_per_class, 1, "or 'auto'")
        )
        self.boundary_gap = whole_number("boundary_gap", boundary_gap, 1)
        self.seed = whole_number("seed", seed)
        self.codec, self.keep_originals = parse_codec(codec).name, keep_originals
        self.device = torch.device(device)
        if self.device.type == "meta":
            raise InputError(f"a {self.saved_as} cannot live on the meta device, which holds no numbers")
        self.image_shape: tuple[int, int, int] | None = None
        self.parts: dict[str, Part] = {}
        self.add_state("rng", Randomness(seed))
        self.add_state("labels", [])
        self.add_state("iteration", 0)
        self.add_state("last_boundary", 0)
        self.add_state("explicit_boundaries", False)
        self.add_state("seconds", dict.fromkeys(TIMED, 0.0))
        self.rng: Randomness
        self.labels: list[Label]
        """The classes seen, in order of first arrival."""
        self.iteration: int
        """Batches observed."""
        self.last_boundary: int
        self.explicit_boundaries: bool
        self.seconds: dict[str, float]

    @property
    def memory(self) -> Store:
        """The memory: its images, labels, which slots are claimed and which hold summaries."""
        self._require_observed("there is no memory")
        return self._memory

    @property
    def rounds(self) -> int:
        """Summarizing rounds so far."""
        return self.summarizer.rounds if self.summarizer else 0

    def boundary(self) -> None:
        """Say that a task has ended. Never needed; once said, boundaries are no longer inferred from new classes, for
        summarizing neither. Said again before the next batch, it changes nothing."""
        self.explicit_boundaries = True
        if self.iteration > self.last_boundary:
            self._pass_boundary()

    def footprint(self) -> Counter[str]:
        """Bytes held, by what holds them; `total` is their sum."""
        counted = Counter(dict.fromkeys(FOOTPRINT, 0))
        counted.update(super().footprint())
        counted["total"] = sum(counted.values())
        return counted

    def export_memory(self) -> ExportedMemory:
        """What the memory holds, to be written to a folder or adopted by another learner or memory."""
        return exported_from(self.memory, self.labels)

    def adopt(self, exported: ExportedMemory) -> None:
        """Begin with the memory of another: only possible before anything was observed, and if all of it fits. Its
        classes are past ones: the next new class is a change of task."""
        if self.image_shape is not None:
            raise InputError(f"this {self.saved_as} has observed something already: a memory is adopted at the start")
        self._require_room(exported)
        self._build(exported.image_shape)
        self._meet(list(dict.fromkeys(exported.labels)))
        memory = self._memory
        owned = exported.claimed & ("claims" in self.policy.provides)
        unowned = len(exported) - int(owned.sum())
        least = 1 - unowned / max(unowned, exported.seen, 1)
        labels = self._batch(exported.images, exported.labels).y.tolist()
        for index, record in enumerate(exported.encoded(memory.codec)):
            priority = math.inf if owned[index] else draw_priority(memory, self.rng["memory"], least)
            slot = memory.put_record(memory.size, record, labels[index], priority)
            if slot is not None:
                memory.summary[slot] = exported.summary[index]
                if owned[index]:
                    memory.claim(slot)
        memory.seen = exported.seen
        self.last_boundary = -self.boundary_gap

    def save(self, path: str | Path, extra: Tree = None) -> None:
        """Save everything needed to go on exactly from here into the folder `path`; the save before is kept too.

        `extra` is saved along (numbers, strings, lists, dicts, tensors) and comes back from `load_with_extra`.
        """
        tree = {"config": self.config(), "image_shape": self.image_shape, "state": self.state()}
        write_checkpoint(Path(path), {"environment": environment(), self.saved_as: tree, "extra": extra})

    def config(self) -> dict[str, Any]:
        """The arguments that make this again, every setting written out."""
        rooms = {room: plain(own) for room, own in self.settings.items()}
        return {
            "memory_size": self.memory_size,
            "memory_bytes": self.memory_bytes,
            "slots_per_class": self.slots_per_class,
            "seed": self.seed,
            "boundary_gap": self.boundary_gap,
            "codec": self.codec,
            "keep_originals": self.keep_originals,
            "device": str(self.device),
        } | rooms

    @contextmanager
    def clock(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start

    def _resolve(
        self,
        resolve: Callable[[dict[str, Settings | None]], dict[str, dict[str, Any]]],
        **nets: Settings | nn.Module | None,
    ) -> dict[str, dict[str, Any]]:
        """All settings, kept. A module given in place of a net's settings is kept for `_build`, and named in them."""
        self.own_nets = {name: copy.deepcopy(net) for name, net in nets.items() if isinstance(net, nn.Module)}
        self.settings = resolve({name: None if isinstance(net, nn.Module) else net for name, net in nets.items()})
        for name, net in self.own_nets.items():
            if name not in self.settings:
                raise InputError(f"this method has no {name}: it takes {', '.join(self.settings)}")
            self.settings[name] = {"own": type(net).__name__}
        if "theta" in self.own_nets:
            require_theta(self.own_nets["theta"])
        return self.settings

    def _add_parts(self, **parts: Part | None) -> None:
        self.parts = {name: part for name, part in parts.items() if part is not None}
        for name, part in self.parts.items():
            self.add_state(name, part)

    def _require_observed(self, consequence: str) -> None:
        if self.image_shape is None:
            raise NotReadyError(
                f"this {self.saved_as} has not seen anything yet, so {consequence}: call {self.fed_by} first"
            )

    def _require_room(self, exported: ExportedMemory) -> None:
        store = self._new_memory(exported.image_shape)
        records = exported.encoded(store.codec)
        if store.budget is None and len(records) > store.capacity:
            raise InputError(f"{len(records)} images do not fit a memory of {store.capacity}: give it more")
        if store.budget is not None and (size := sum(map(len, records))) > store.budget:
            raise InputError(f"{size} bytes of images do not fit a memory of {store.budget} bytes: give it more")

    def _taken_in(self, x: Any, y: Any) -> Batch:
        """The checked batch, after everything has made room for its new classes."""
        images = check_images(x, self.image_shape)
        labels = check_labels(y, len(images), self.labels)
        new = [label for label in dict.fromkeys(labels) if label not in self.labels]
        if self.image_shape is None:
            self._build((int(images.shape[1]), int(images.shape[2]), int(images.shape[3])))
        if new:
            self._meet(new)
        return self._batch(images, labels)

    def _keep(self, stream: Batch) -> None:
        """Store the batch, and summarize if that is due."""
        ctx = self._context()
        if self.summarizer:
            with self.clock("summarize"):
                self.summarizer.push(stream, ctx)
        with self.clock("store"):
            report = self.policy.store(stream, ctx)
        if self.summarizer:
            self.summarizer.after_store(stream, report, ctx)
        self.iteration += 1

    def _build(self, image_shape: tuple[int, int, int]) -> None:
        """Make everything that depends on the images' shape."""
        store = self._new_memory(image_shape)
        if self.summarizer:
            self.summarizer.build(self._new_theta(image_shape))
        self._memory = store
        self.add_state("_memory", store)
        self.image_shape = image_shape

    def _new_theta(self, image_shape: tuple[int, int, int]) -> SummarizingNet:
        channels, size, _ = image_shape
        if "theta" in self.own_nets:
            return own_theta(self.own_nets["theta"], image_shape, self.rng["theta"], self.device)
        return materialise(lambda: ConvNet(channels, size, **self.settings["theta"]), self.rng["theta"], self.device)

    def _new_memory(self, image_shape: tuple[int, int, int]) -> Store:
        return limited_store(
            self.memory_size, self.memory_bytes, image_shape, self.codec, self.device, self.keep_originals
        )

    def _meet(self, new: list[Label]) -> None:
        """New classes: a boundary if one is due, then every part makes room for them."""
        due = self.iteration - self.last_boundary >= self.boundary_gap
        if due and not self.explicit_boundaries:
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

    def _context(self) -> Context:
        raise NotImplementedError

    def _slots_per_class(self) -> int:
        """k in force now."""
        if self.slots_per_class == "auto":
            return max(1, self._memory.capacity // max(1, len(self.labels)))
        return self.slots_per_class

    def _batch(self, images: Tensor, labels: list[Label]) -> Batch:
        index = {label: position for position, label in enumerate(self.labels)}
        y = torch.tensor([index[label] for label in labels], device=self.device)
        return Batch(as_float(images.to(self.device)), y, images if images.dtype == torch.uint8 else None)
