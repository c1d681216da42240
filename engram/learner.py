"""The learner: what a user holds. It wires the parts of a method and owns their state."""

from __future__ import annotations

import logging
import math
import platform
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from engram.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from engram.core import (
    LOGITS,
    Augmentation,
    Batch,
    Context,
    InputError,
    Model,
    NonFiniteLossError,
    Part,
    Randomness,
    as_float,
)
from engram.initialise import at_most, materialise
from engram.memory import Store, parse_codec
from engram.methods import Method, Settings, find, method_settings, plain, unmet_needs
from engram.nets import ConvNet, ReducedResNet18
from engram.sizes import parse_bytes
from engram.state import Tree, pad_optimizer_state, unique_bytes
from engram.validation import Label, check_images, check_labels, require_shape

FOOTPRINT = (
    "images",
    "labels",
    "originals",
    "queue",
    "working_copies",
    "net",
    "theta",
    "optimizer",
    "snapshots",
    "bookkeeping",
)

DEFAULT_MEMORY_SIZE = 100
TIMED = dict.fromkeys(("train", "store", "summarize", "theta")).keys()
"""What the seconds of learning are booked under."""
RESTORING_SLACK = 1 << 26
"""Bytes a restored learner may need beyond those that were saved."""

_log = logging.getLogger(__name__)


class Learner(Part):
    """Learns from a stream seen once, with a small memory.

    >>> import numpy as np
    >>> from engram import Learner
    >>> learner = Learner("scr+ssd", memory_size=4, net={"width": 8}, theta={"width": 8})
    >>> images = np.random.default_rng(0).random((8, 1, 16, 16), dtype=np.float32)
    >>> learner.observe(images, ["cat", "dog"] * 4)
    >>> sorted(set(learner.predict(images))) <= ["cat", "dog"]
    True

    Args:
        method: a name of `engram methods`, or a `Method` of your own.
        memory_size: images the memory holds (K); 100 if neither this nor `memory_bytes` is given.
        memory_bytes: bytes of encoded images the memory holds instead, such as "300KB"; as many images as fit.
        slots_per_class: slots each class may claim for its summary (k), or "auto": K over the classes seen.
        seed: of every random draw.
        repeats: training steps on each stream batch; the method's own if not given.
        classes_total: make softmax heads for so many classes from the start, as published; they grow if not given.
        boundary_gap: new classes that arrive within so many iterations count as one change of task.
        codec: how images are stored: float32 (as they are), uint8, jpeg(QUALITY) or webp(QUALITY).
        keep_originals: keep the first image of each claimed slot, to look at beside its summary.
        device: where the net runs.
        scheme, augment, retrieval, policy, summarize, classifier, net, theta: settings of that part, by name.
    """

    def __init__(
        self,
        method: str | Method = "scr+ssd",
        *,
        memory_size: int | None = None,
        memory_bytes: int | str | None = None,
        slots_per_class: int | Literal["auto"] = "auto",
        seed: int = 0,
        repeats: int | None = None,
        classes_total: int | None = None,
        boundary_gap: int = 50,
        codec: str = "float32",
        keep_originals: bool = False,
        device: str = "cpu",
        scheme: Settings | None = None,
        augment: Settings | None = None,
        retrieval: Settings | None = None,
        policy: Settings | None = None,
        summarize: Settings | None = None,
        classifier: Settings | None = None,
        net: Settings | None = None,
        theta: Settings | None = None,
    ) -> None:
        composition = find(method) if isinstance(method, str) else method
        if unmet := unmet_needs(composition):
            raise InputError(f"{method} makes no sense: {'; '.join(unmet)}")
        codec = parse_codec(codec).name
        if slots_per_class != "auto" and (not isinstance(slots_per_class, int) or slots_per_class < 1):
            raise InputError(f"slots_per_class is {slots_per_class}: give a positive number, or 'auto'")
        if repeats is not None and repeats < 1:
            raise InputError(f"repeats is {repeats}: every stream batch is trained on at least once")
        if memory_size is not None and memory_bytes is not None:
            raise InputError("memory_size and memory_bytes both limit the memory: give one of them")
        if memory_size is None and memory_bytes is None:
            memory_size = DEFAULT_MEMORY_SIZE
        if memory_size is not None and memory_size < 1:
            raise InputError(f"memory_size is {memory_size}: a memory needs at least one slot")
        given = {
            "scheme": scheme,
            "augment": augment,
            "retrieval": retrieval,
            "policy": policy,
            "summarize": summarize,
            "classifier": classifier,
            "net": net,
            "theta": theta,
        }
        settings = method_settings(composition, given)
        self.method = method if isinstance(method, str) else None
        self.memory_size, self.slots_per_class = memory_size, slots_per_class
        self.memory_bytes = None if memory_bytes is None else parse_bytes(memory_bytes)
        self.seed, self.boundary_gap, self.codec, self.keep_originals = seed, boundary_gap, codec, keep_originals
        self.repeats = repeats or composition.repeats
        self.classes_total = classes_total
        self.device = torch.device(device)
        if self.device.type == "meta":
            raise InputError("a learner cannot live on the meta device, which holds no numbers")
        self.settings = settings

        self.image_shape: tuple[int, int, int] | None = None
        self.scheme = composition.scheme(**settings["scheme"])
        self.augmentation = composition.augment(**settings["augment"]) if composition.augment else None
        self.retrieval = composition.retrieval(**settings["retrieval"])
        self.policy = composition.policy(**settings["policy"])
        self.classifier = composition.classifier(**settings["classifier"])
        self.summarizer = composition.summarize(**settings["summarize"]) if composition.summarize else None
        self.parts: dict[str, Part] = {
            name: getattr(self, name)
            for name in ("scheme", "augmentation", "retrieval", "policy", "classifier", "summarizer")
            if getattr(self, name) is not None
        }
        for name, part in self.parts.items():
            self.add_state(name, part)
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

    def observe(self, x: Any, y: Any) -> None:
        """Learn from one batch: images (N,C,H,W), float in [0,1] or uint8, and their labels, all int or all str."""
        images = check_images(x, self.image_shape)
        labels = check_labels(y, len(images), self.labels)
        new = [label for label in dict.fromkeys(labels) if label not in self.labels]
        if self.image_shape is None:
            self._build((int(images.shape[1]), int(images.shape[2]), int(images.shape[3])))
        if new:
            self._meet(new)
        stream = self._batch(images, labels)
        with self.clock("train"):
            for _ in range(self.repeats):
                self._train(stream)
        ctx = self._context()
        if self.summarizer:
            with self.clock("summarize"):
                self.summarizer.push(stream, ctx)
        with self.clock("store"):
            report = self.policy.store(stream, ctx)
        if self.summarizer:
            self.summarizer.after_store(stream, report, ctx)
        self.iteration += 1

    partial_fit = observe

    def boundary(self) -> None:
        """Say that a task has ended. Never needed; once said, boundaries are no longer inferred from new classes. Said
        again before the next batch, it changes nothing."""
        self.explicit_boundaries = True
        if self.iteration > self.last_boundary:
            self._pass_boundary()

    def scores(self, x: Any) -> Tensor:
        """(N, classes) scores in the order of `labels`; higher is likelier, -inf where a class cannot be predicted.

        Heads of `classes_total` classes score those not seen yet too, in the columns behind.
        """
        self._require_observed("nothing can be predicted")
        images = check_images(x, self.image_shape, allow_empty=True)
        if not len(images):
            return torch.zeros(0, len(self.labels))
        return self.classifier.scores(as_float(images.to(self.device)), self._context())

    def predict(self, x: Any) -> list[Label | None]:
        """The likeliest label of each image, as given to `observe`.

        None where a class not seen yet scores highest, which only heads of `classes_total` classes can do.
        """
        scores = self.scores(x)
        likeliest = scores.argmax(1).tolist() if len(scores) else []
        return [self.labels[index] if index < len(self.labels) else None for index in likeliest]

    def predict_proba(self, x: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Softmax of the scores, in the order of `labels`."""
        probabilities: np.ndarray[Any, np.dtype[np.float32]] = self.scores(x).softmax(1).cpu().numpy()
        return probabilities

    def footprint(self) -> Counter[str]:
        """Bytes held, by what holds them; `total` is their sum."""
        counted = Counter(dict.fromkeys(FOOTPRINT, 0))
        counted.update(super().footprint())
        counted["total"] = sum(counted.values())
        return counted

    def save(self, path: str | Path, extra: Tree = None) -> None:
        """Save everything needed to go on exactly from here into the folder `path`; the save before is kept too.

        `extra` is saved along (numbers, strings, lists, dicts, tensors) and comes back from `load_with_extra`.
        """
        if self.method is None:
            raise InputError("a learner of an unregistered method cannot be saved: add it to engram.methods.METHODS")
        tree = {"config": self.config(), "image_shape": self.image_shape, "state": self.state()}
        write_checkpoint(Path(path), {"environment": environment(), "learner": tree, "extra": extra})

    @classmethod
    def load(cls, path: str | Path, device: str | None = None) -> Learner:
        """The learner saved at `path`, on the device it was on or the one given."""
        return cls.load_with_extra(path, device)[0]

    @classmethod
    def load_with_extra(cls, path: str | Path, device: str | None = None) -> tuple[Learner, Tree]:
        """The learner saved at `path`, and what was saved along with it."""
        tree = read_checkpoint(Path(path))
        try:
            learner = cls._restored(tree["learner"], device)
            was, extra = dict(tree["environment"]), tree["extra"]
        except Exception as error:  # a saved state may be wrong in any way, and none of them is the caller's fault
            hint = "; it was saved on another device: give device='cpu'" if "device" in str(error).lower() else ""
            raise CheckpointError(f"{path} does not hold a learner this version can restore: {error}{hint}") from error
        now = environment()
        changed = [f"{name} was {was.get(name)}, is {now[name]}" for name in now if was.get(name) != now[name]]
        if changed:
            _log.warning("checkpoint %s: going on may differ in the last bits (%s)", path, ", ".join(changed))
        return learner, extra

    @classmethod
    def _restored(cls, saved: Tree, device: str | None) -> Learner:
        learner = cls(**saved["config"] | ({"device": device} if device else {}))
        if saved["image_shape"] is not None:
            image_shape = require_shape(tuple(saved["image_shape"]))
            room = unique_bytes(saved["state"]) + RESTORING_SLACK
            if 8 * max(math.prod(image_shape), learner.memory_size or 0, learner.classes_total or 0) > room:
                raise ValueError("its settings ask for far more than was saved")
            with at_most(room):
                learner._build(image_shape)
        learner.load_state(saved["state"])
        learner._check_all_restored()
        return learner

    def _check_all_restored(self) -> None:
        kinds = {type(label) for label in self.labels}
        if len(kinds) > 1 or not kinds <= {int, str} or len(set(self.labels)) < len(self.labels):
            raise ValueError("its labels are not all integers or all strings, each once")
        if self.seconds.keys() != TIMED:
            raise ValueError("its times are not those of a learner")
        if self.image_shape is None:
            return
        ctx = self._context()
        for part in (*self.parts.values(), self._memory):
            part.check_restored(ctx)
        if LOGITS in self.model.net.heads:
            logits = self.model.net.heads[LOGITS](torch.zeros(1, self.model.feature_width, device=self.device))
            if logits.shape[1] < len(self.labels):
                raise ValueError("its head has fewer outputs than classes were seen")

    def config(self) -> dict[str, Any]:
        """The arguments that make this learner again, every setting written out."""
        rooms = {room: plain(own) for room, own in self.settings.items()}
        return {
            "method": self.method,
            "memory_size": self.memory_size,
            "memory_bytes": self.memory_bytes,
            "slots_per_class": self.slots_per_class,
            "seed": self.seed,
            "repeats": self.repeats,
            "classes_total": self.classes_total,
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

    def _require_observed(self, consequence: str) -> None:
        if self.image_shape is None:
            raise InputError(f"this learner has not observed anything yet, so {consequence}: call observe first")

    def _build(self, image_shape: tuple[int, int, int]) -> None:
        """Make everything that depends on the images' shape."""
        channels, size, _ = image_shape
        backbone = materialise(
            lambda: ReducedResNet18(channels, size, **self.settings["net"]), self.rng["init"], self.device
        )
        self.model = Model(backbone, backbone.feature_width)
        self.optimizer = self.scheme.build(self.model, self.rng)
        self.model.grow(self.classes_total or 0, self.rng["init"])
        store = self._new_memory(image_shape)
        self._memory = store
        self.add_state("model", self.model)
        self.add_state("optimizer", self.optimizer, count_as="optimizer")
        self.add_state("_memory", store)
        if self.summarizer:
            theta = materialise(
                lambda: ConvNet(channels, size, **self.settings["theta"]), self.rng["theta"], self.device
            )
            self.summarizer.build(theta)
        self.image_shape = image_shape

    def _new_memory(self, image_shape: tuple[int, int, int]) -> Store:
        """A limit in bytes is one in images where every image takes the same."""
        codec, size, budget = parse_codec(self.codec), self.memory_size, self.memory_bytes
        each = codec.record_bytes(image_shape)
        if budget is not None and each is not None and each <= budget:
            size, budget = budget // each, None
        return Store(size, image_shape, codec, self.device, self.keep_originals, budget)

    def _meet(self, new: list[Label]) -> None:
        """New classes: a boundary if one is due, then every part makes room for them."""
        due = self.iteration - self.last_boundary >= self.boundary_gap
        if due and not self.explicit_boundaries:
            self._pass_boundary()
        first = len(self.labels)
        self.labels = [*self.labels, *new]
        self.model.grow(len(self.labels), self.rng["init"])
        pad_optimizer_state(self.optimizer)
        ctx = self._context()
        for part in self.parts.values():
            part.on_new_classes(list(range(first, len(self.labels))), ctx)

    def _pass_boundary(self) -> None:
        self.last_boundary = self.iteration
        ctx = self._context()
        for part in self.parts.values():
            part.on_boundary(ctx)

    def _train(self, stream: Batch) -> None:
        ctx = self._context()
        replay = None
        self.model.net.train()
        if ctx.memory.size and (wanted := self.scheme.replay_size(ctx)):
            replay = ctx.memory.read(self.retrieval.select(stream, wanted, ctx))
        if self.augmentation:
            stream = self._augmented(stream, self.augmentation)
            replay = None if replay is None else self._augmented(replay, self.augmentation)
        loss = self.scheme.loss(stream, replay, ctx)
        if loss is None:
            return
        if not math.isfinite(float(loss.detach())):
            raise NonFiniteLossError(
                f"the loss became {float(loss.detach())} at batch {self.iteration}: lower the learning rate"
            )
        self.optimizer.zero_grad()
        loss.backward()
        self.scheme.adjust_gradients(stream, ctx)
        self.optimizer.step()
        self.scheme.after_step(ctx)
        self.model.version += 1

    def _augmented(self, batch: Batch, augmentation: Augmentation) -> Batch:
        return Batch(augmentation.augment(batch.x, self.rng["augmentation"]), batch.y)

    def _context(self) -> Context:
        classes = len(self.labels)
        auto = max(1, self._memory.capacity // max(1, classes))
        return Context(
            model=self.model,
            scheme=self.scheme,
            retrieval=self.retrieval,
            memory=self._memory,
            rng=self.rng,
            classes=classes,
            iteration=self.iteration,
            slots_per_class=auto if self.slots_per_class == "auto" else self.slots_per_class,
            boundary_gap=self.boundary_gap,
            optimizer=self.optimizer,
            clock=self.clock,
        )

    def _batch(self, images: Tensor, labels: list[Label]) -> Batch:
        index = {label: position for position, label in enumerate(self.labels)}
        y = torch.tensor([index[label] for label in labels], device=self.device)
        return Batch(as_float(images.to(self.device)), y, images if images.dtype == torch.uint8 else None)


def environment() -> dict[str, Any]:
    """What bit-exact continuation depends on, besides the state."""
    return {
        "engram": version("engram"),
        "torch": torch.__version__,
        "kornia": version("kornia"),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }
