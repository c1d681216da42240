"""The few types every room shares: a batch, a stateful part, the context of one step, the model, and the part kinds.

A sample walks: stream → learner → scheme (trains the net) → policy (stores) → summarizer (improves the memory) →
classifier (answers). Each kind of part is a small base class here; each idea is one file in its room.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.heads import GrowingHead, GrowingLinear
from engram.initialise import materialise
from engram.state import (
    Tree,
    module_state,
    optimizer_state,
    restore_module,
    restore_optimizer,
    tree_bytes,
)

if TYPE_CHECKING:
    from engram.memory.store import Store


@dataclass(frozen=True, eq=False)
class Batch:
    """Images (N,C,H,W), float32 in [0,1] when they come from a stream, and class indices in order of first arrival.

    `raw` holds the same pixels as uint8 when that is how they came: a quarter of the bytes for whoever keeps them.
    """

    x: Tensor
    y: Tensor
    raw: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: Tensor) -> Batch:
        return Batch(self.x[index], self.y[index], None if self.raw is None else self.raw[index])

    @staticmethod
    def join(*batches: Batch | None) -> Batch:
        present = [batch for batch in batches if batch is not None]
        return Batch(torch.cat([batch.x for batch in present]), torch.cat([batch.y for batch in present]))


class Part:
    """Everything stateful. State is declared once and is then saved, restored and counted in bytes."""

    needs: frozenset[str] = frozenset()
    """What some part of the method must provide, or the composition is refused."""
    provides: frozenset[str] = frozenset()
    published: Mapping[str, Any] = MappingProxyType({})
    """Settings that runs on the paper's streams have, where they are not what suits other data."""

    def add_state(self, name: str, value: Any, count_as: str = "bookkeeping") -> None:
        """Declare `self.name`; `count_as` is the line of `footprint()` its bytes belong to.

        A value may be a tensor, a JSON scalar, a dict or list of those, a module, an optimizer, a generator or a part.
        """
        self.__dict__.setdefault("_declared", {})[name] = count_as
        setattr(self, name, value)

    @property
    def declared(self) -> dict[str, str]:
        found: dict[str, str] = self.__dict__.get("_declared", {})
        return found

    def state(self) -> Tree:
        return {name: _state_of(getattr(self, name)) for name in self.declared}

    def load_state(self, tree: Tree) -> None:
        if tree.keys() != self.declared.keys():
            raise ValueError(f"{type(self).__name__} cannot load {sorted(tree)}: it keeps {sorted(self.declared)}")
        for name in self.declared:
            saved, current = tree[name], getattr(self, name)
            if isinstance(current, Part):
                current.load_state(saved)
            elif isinstance(current, nn.Module):
                restore_module(current, saved)
            elif isinstance(current, torch.optim.Optimizer):
                restore_optimizer(current, saved)
            elif isinstance(current, torch.Generator):
                current.set_state(saved)
            else:
                _require_like(current, saved, f"{type(self).__name__}.{name}")
                setattr(self, name, saved)

    def check_restored(self, ctx: Context) -> None:
        """Raise a ValueError if what was restored cannot belong to these images and classes."""

    def footprint(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for name, count_as in self.declared.items():
            value = getattr(self, name)
            total.update(value.footprint() if isinstance(value, Part) else {count_as: tree_bytes(_state_of(value))})
        return total

    def on_boundary(self, ctx: Context) -> None:
        """One task ended (said by the caller, or inferred from new classes)."""

    def on_new_classes(self, new: list[int], ctx: Context) -> None:
        """Classes seen for the first time are about to be learned; `ctx.classes` counts them already."""


def _require_like(current: Any, saved: Any, name: str) -> None:
    """What replaces a tensor, number, list or dict must be of its kind, a tensor of its shape too."""
    if type(saved) is not type(current):
        raise ValueError(f"{name} is {type(saved).__name__}, not {type(current).__name__}")
    if isinstance(current, Tensor) and (saved.dtype, saved.shape) != (current.dtype, current.shape):
        raise ValueError(f"{name} is {saved.dtype} {tuple(saved.shape)}, not {current.dtype} {tuple(current.shape)}")


def _state_of(value: Any) -> Tree:
    if isinstance(value, Part):
        return value.state()
    if isinstance(value, nn.Module):
        return module_state(value)
    if isinstance(value, torch.optim.Optimizer):
        return optimizer_state(value)
    if isinstance(value, torch.Generator):
        return value.get_state()
    return value


class Randomness(Part):
    """Named random generators, each seeded by (seed, name): no part disturbs another's draws, nor the global ones."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._generators: dict[str, torch.Generator] = {}

    def __getitem__(self, name: str) -> torch.Generator:
        if name not in self._generators:
            digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
            generator = torch.Generator()
            generator.manual_seed(int.from_bytes(digest[:8], "little") >> 1)
            self._generators[name] = generator
        return self._generators[name]

    def state(self) -> Tree:
        return {name: generator.get_state() for name, generator in self._generators.items()}

    def load_state(self, tree: Tree) -> None:
        for name, saved in tree.items():
            self[name].set_state(saved)

    def footprint(self) -> Counter[str]:
        return Counter({"bookkeeping": tree_bytes(self.state())})


TIMED = dict.fromkeys(("train", "store", "summarize", "theta")).keys()
"""What the seconds of learning are booked under."""

LOGITS = "logits"
"""The head whose outputs are the classes' logits."""


def as_float(pixels: Tensor) -> Tensor:
    """Pixels in [0,1], from 8-bit values or floats."""
    return pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels


def choose(count: int, of: int, generator: torch.Generator) -> Tensor:
    """`count` distinct indices of range(of), uniformly (all of them, shuffled, if there are fewer)."""
    return torch.randperm(of, generator=generator)[:count]


class Net(nn.Module):
    """A backbone and named heads on its features."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.heads = nn.ModuleDict()

    def forward(self, x: Tensor, *heads: str) -> tuple[Tensor, ...]:
        """The features, and what each of these heads makes of them."""
        features: Tensor = self.backbone(x)
        return features, *(self.heads[head](features) for head in heads)


Parameters = dict[str, Tensor]
"""Parameters of a net by name, in place of its own."""


class Model(Part):
    """The learner's net φ. Given `params` it computes with those instead and leaves batch-norm statistics alone."""

    def __init__(self, backbone: nn.Module, feature_width: int, device: torch.device) -> None:
        self.feature_width, self.device = feature_width, device
        self.version = 0
        """Changes whenever the net does."""
        self.add_state("net", Net(backbone), count_as="net")
        self.net: Net

    def features(self, x: Tensor, params: Parameters | None = None) -> Tensor:
        return self.outputs(x, params=params)[0]

    def logits(self, x: Tensor, params: Parameters | None = None) -> Tensor:
        """One a class, of the head every scheme with labels to predict adds."""
        return self.outputs(x, LOGITS, params=params)[1]

    def outputs(self, x: Tensor, *heads: str, params: Parameters | None = None) -> tuple[Tensor, ...]:
        """The features, and what each of these heads makes of them, in one forward pass."""
        if params is None:
            return self.net(x, *heads)  # type: ignore[no-any-return]
        buffers = {name: buffer.clone() for name, buffer in self.net.named_buffers()}
        return torch.func.functional_call(self.net, params | buffers, (x, *heads))  # type: ignore[no-any-return]

    def head(self, name: str) -> nn.Module:
        return self.net.heads[name]

    def add_classifier(self, generator: torch.Generator) -> None:
        """The head behind `logits`: it has no class yet."""
        self.add_head(LOGITS, lambda: GrowingLinear(self.feature_width, 0), generator)

    def add_head(self, name: str, build: Callable[[], nn.Module], generator: torch.Generator) -> None:
        self.net.heads[name] = materialise(build, generator, self.device)

    def grow(self, classes: int, generator: torch.Generator) -> None:
        """Make room for so many classes in all, in every head that has one output a class."""
        for head in self.net.heads.values():
            if isinstance(head, GrowingHead):
                head.grow(classes, generator)

    def parameters(self) -> Iterator[nn.Parameter]:
        return self.net.parameters()

    def check_restored(self, ctx: Context) -> None:
        if LOGITS in self.net.heads:
            logits = self.net.heads[LOGITS](torch.zeros(1, self.feature_width, device=self.device))
            if logits.shape[1] < ctx.classes:
                raise ValueError("its head has fewer outputs than classes were seen")

    @contextmanager
    def eval_mode(self) -> Iterator[None]:
        """Batch norm by its running statistics; the mode before is restored."""
        training = self.net.training
        self.net.eval()
        try:
            yield
        finally:
            self.net.train(training)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Eval mode without gradients."""
        with self.eval_mode(), torch.no_grad():
            yield


@dataclass(frozen=True)
class Context:
    """What a part may use during one call. Built by the learner each time, never stored."""

    model: Model
    scheme: Scheme
    retrieval: Retrieval
    memory: Store
    rng: Randomness
    classes: int
    """Classes seen so far, this batch included; their indices are range(classes)."""
    classes_total: int
    """Classes in all where their number was announced, else those seen so far."""
    iteration: int
    """Batches observed before this one."""
    slots_per_class: int
    """k in force now."""
    optimizer: torch.optim.Optimizer
    clock: Callable[[str], Any]
    """`with ctx.clock("summarize"):` books the time under that name."""


class Scheme(Part):
    """How one step trains the net."""

    learning_rate: float

    def build(self, model: Model, rng: Randomness) -> torch.optim.Optimizer:
        """Add the heads this scheme needs and return the optimizer of the whole model."""
        raise NotImplementedError

    def replay_size(self, ctx: Context) -> int:
        """How many memory images one step asks retrieval for."""
        raise NotImplementedError

    def loss(self, stream: Batch, replay: Batch | None, ctx: Context) -> Tensor | None:
        """The loss to descend, or None for no step. `replay` is None while the memory is empty."""
        raise NotImplementedError

    def class_scores(self, x: Tensor, ctx: Context, params: Parameters | None = None) -> Tensor:
        """What a label loss is taken over: the logits."""
        return ctx.model.logits(x, params)

    def stream_loss(self, stream: Batch, ctx: Context, params: Parameters | None = None) -> Tensor:
        """What a virtual step on the stream batch descends."""
        return F.cross_entropy(self.class_scores(stream.x, ctx, params), stream.y)

    def adjust_gradients(self, stream: Batch, ctx: Context) -> None:
        """Change the gradients of the loss before the step is taken."""

    def after_step(self, ctx: Context) -> None:
        """The step was taken; its gradients are still there."""


class Augmentation(Part):
    """Changes stream and replay images before each training step; what is stored stays as it came."""

    def augment(self, images: Tensor, generator: torch.Generator) -> Tensor:
        raise NotImplementedError


class Retrieval(Part):
    """Which memory images are replayed."""

    def select(self, stream: Batch, count: int, ctx: Context) -> Tensor:
        """Up to `count` distinct filled slots."""
        raise NotImplementedError


@dataclass
class StoreReport:
    """What a policy did with one batch."""

    stored: list[int] = field(default_factory=list)
    """Slots written."""
    claimed: list[int] = field(default_factory=list)
    """Slots newly claimed for their class (also in `stored`)."""


class Policy(Part):
    """Which stream images enter the memory, and what leaves it."""

    def store(self, stream: Batch, ctx: Context) -> StoreReport:
        raise NotImplementedError


class SummarizingNet(nn.Module):
    """What summarizing asks of its net θ. Images must not influence each other (no batch statistics)."""

    @property
    def matched_weights(self) -> list[Tensor]:
        """The weights whose gradients are matched."""
        raise NotImplementedError

    def features(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def classify(self, features: Tensor) -> Tensor:
        """Logits of the classes seen."""
        raise NotImplementedError

    def grow(self, classes: int, generator: torch.Generator) -> None:
        """Make room for so many classes in all."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.features(x))


class Summarizer(Part):
    """Improves what the memory holds. It sees every stream batch, after the net was trained on it."""

    rounds: int
    """Rounds of summarizing so far."""
    last_losses: dict[str, float]
    """What the last round measured, by name."""

    def build(self, theta: SummarizingNet) -> None:
        """Take the summarizing net θ. Called once, when the shape of the images is known."""
        raise NotImplementedError

    def push(self, stream: Batch, ctx: Context) -> None:
        """Before the batch is stored."""
        raise NotImplementedError

    def after_store(self, stream: Batch, report: StoreReport, ctx: Context) -> None:
        """After the batch is stored: summarize if due, then learn from the batch."""
        raise NotImplementedError


class Classifier(Part):
    """Answers."""

    def scores(self, x: Tensor, ctx: Context) -> Tensor:
        """(N, classes) scores, higher is likelier; -inf where a class cannot be predicted."""
        raise NotImplementedError
