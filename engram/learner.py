"""The learner: what a user holds. It wires the parts of a method and owns their state."""

from __future__ import annotations

import dataclasses
import math
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from engram.averaged import AveragedModel
from engram.core import Augmentation, Batch, Context, Model, as_float, choose
from engram.errors import InputError, NonFiniteLossError, NotReadyError, whole_number
from engram.initialise import materialise
from engram.keeper import Keeper
from engram.methods import Method, Settings, find, method_settings, unmet_needs
from engram.nets import ReducedResNet18, own_backbone, require_width
from engram.restoring import restored
from engram.state import Tree, pad_optimizer_state
from engram.validation import Label, check_images

Reading = Literal["net", "averaged"]
"""What answers: the net as trained, or its moving average."""

MOST_REPEATS = 1000
"""Training steps on one batch; beyond, a damaged checkpoint is likelier than a wish."""


class Learner(Keeper):
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
        average: decay of a moving average of the weights, such as 0.99, kept beside the net; None keeps none. Training
            is the same with and without it.
        answer_from: whether predictions come from the "net" or the "averaged" net; the averaged one if there is one.
        boundary_gap: new classes that arrive within so many iterations count as one change of task.
        codec: how images are stored: float32 (as they are), uint8, jpeg(QUALITY) or webp(QUALITY).
        keep_originals: keep the first image of each claimed slot, to look at beside its summary.
        device: where the net runs.
        scheme, augment, retrieval, policy, summarize, classifier: settings of that part, by name.
        net, theta: settings of that net, by name; or a module of your own in its place, which is copied. The output of
            `net` is the features the heads are put on. `theta` may have no batch norm.
    """

    saved_as, fed_by = "learner", "observe"

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
        average: float | None = None,
        answer_from: Reading | None = None,
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
        net: Settings | nn.Module | None = None,
        theta: Settings | nn.Module | None = None,
    ) -> None:
        composition = find(method) if isinstance(method, str) else method
        if unmet := unmet_needs(composition):
            raise InputError(f"{method} makes no sense: {'; '.join(unmet)}")
        repeats = composition.repeats if repeats is None else whole_number("repeats", repeats, 1)
        if repeats > MOST_REPEATS:
            raise InputError(f"repeats is {repeats}: need 1 to {MOST_REPEATS} steps on a stream batch")
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
        self.method = method if isinstance(method, str) else None
        self.repeats = repeats
        self.classes_total = None if classes_total is None else whole_number("classes_total", classes_total, 1)
        self.average, self.answer_from = _checked_average(average, answer_from)
        given = {
            "scheme": scheme,
            "augment": augment,
            "retrieval": retrieval,
            "policy": policy,
            "summarize": summarize,
            "classifier": classifier,
        }
        settings = self._resolve(lambda nets: method_settings(composition, given | nets), net=net, theta=theta)
        if "net" not in self.own_nets:
            require_width(settings["net"]["width"])
        self.scheme = composition.scheme(**settings["scheme"])
        self.augmentation = composition.augment(**settings["augment"]) if composition.augment else None
        self.retrieval = composition.retrieval(**settings["retrieval"])
        self.policy = composition.policy(**settings["policy"])
        self.classifier = composition.classifier(**settings["classifier"])
        self.summarizer = composition.summarize(**settings["summarize"]) if composition.summarize else None
        self._add_parts(
            scheme=self.scheme,
            augmentation=self.augmentation,
            retrieval=self.retrieval,
            policy=self.policy,
            classifier=self.classifier,
            summarizer=self.summarizer,
        )

    def observe(self, x: Any, y: Any) -> None:
        """Learn from one batch: images (N,C,H,W), float in [0,1] or uint8, and their labels, all int or all str."""
        stream = self._taken_in(x, y)
        with self.clock("train"):
            for _ in range(self.repeats):
                self._train(stream)
        self._keep(stream)

    partial_fit = observe

    def rehearse(self, steps: int, batch: int = 10) -> None:
        """Train on the memory alone: each step takes `batch` of its images in place of a stream batch."""
        if steps < 0 or batch < 1:
            raise InputError(f"steps {steps}, batch {batch}: need 0 and 1 at least")
        memory = self.memory
        if not memory.size:
            raise InputError("the memory is empty: there is nothing to rehearse")
        with self.clock("train"):
            for _ in range(steps):
                self._train(memory.read(choose(batch, memory.size, self.rng["replay"])))

    def scores(self, x: Any, *, answer_from: Reading | None = None) -> Tensor:
        """(N, classes) scores in the order of `labels`; higher is likelier, -inf where a class cannot be predicted.

        Heads of `classes_total` classes score those not seen yet too, in the columns behind. `answer_from` chooses
        another net than the learner's own setting does.
        """
        self._require_observed("nothing can be predicted")
        images = check_images(x, self.image_shape, allow_empty=True)
        ctx = self._answering_context(answer_from or self.answer_from)
        if len(images):
            return self.classifier.scores(as_float(images.to(self.device)), ctx)
        with suppress(NotReadyError):
            blank = torch.zeros(1, *images.shape[1:], device=self.device)
            return self.classifier.scores(blank, ctx)[:0]
        return torch.zeros(0, len(self.labels))

    def predict(self, x: Any, *, answer_from: Reading | None = None) -> list[Label | None]:
        """The likeliest label of each image, as given to `observe`.

        None where a class not seen yet scores highest, which only heads of `classes_total` classes can do.
        """
        scores = self.scores(x, answer_from=answer_from)
        likeliest = scores.argmax(1).tolist() if len(scores) else []
        return [self.labels[index] if index < len(self.labels) else None for index in likeliest]

    def predict_proba(self, x: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Softmax of the scores, in the order of `labels`.

        Heads of `classes_total` classes give their share to those not seen yet too, in the columns behind.
        """
        probabilities: np.ndarray[Any, np.dtype[np.float32]] = self.scores(x).softmax(1).cpu().numpy()
        return probabilities

    def save(self, path: str | Path, extra: Tree = None) -> None:
        if self.method is None:
            raise InputError("a learner of an unregistered method cannot be saved: add it to engram.methods.METHODS")
        super().save(path, extra)

    @classmethod
    def load(
        cls,
        path: str | Path,
        device: str | None = None,
        *,
        net: nn.Module | None = None,
        theta: nn.Module | None = None,
    ) -> Learner:
        """The learner saved at `path`, or by the run in that folder, on the device it was on or the one given.

        A net of your own is saved by its weights alone, so give one of the same shape to take them.
        """
        return cls.load_with_extra(path, device, net=net, theta=theta)[0]

    @classmethod
    def load_with_extra(
        cls,
        path: str | Path,
        device: str | None = None,
        *,
        net: nn.Module | None = None,
        theta: nn.Module | None = None,
    ) -> tuple[Learner, Tree]:
        """The learner saved at `path`, and what was saved along with it."""
        return restored(cls, Path(path), device, {"net": net, "theta": theta})

    def config(self) -> dict[str, Any]:
        own = {
            "method": self.method,
            "repeats": self.repeats,
            "classes_total": self.classes_total,
            "average": self.average,
            "answer_from": self.answer_from,
        }
        return own | super().config()

    def _build(self, image_shape: tuple[int, int, int]) -> None:
        channels, size, _ = image_shape
        own = own_backbone(self.own_nets["net"], image_shape, self.device) if "net" in self.own_nets else None
        super()._build(image_shape)
        if own is not None:
            self.model = Model(own, own.feature_width, self.device)
        else:
            made = materialise(
                lambda: ReducedResNet18(channels, size, **self.settings["net"]), self.rng["init"], self.device
            )
            backbone = made.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self.model = Model(backbone, made.feature_width, self.device)
        self.model.net.zero_grad()
        self.optimizer = self.scheme.build(self.model, self.rng)
        self.model.grow(self.classes_total or 0, self.rng["init"])
        self.add_state("model", self.model)
        self.add_state("optimizer", self.optimizer, count_as="optimizer")
        if self.average is not None:
            self.add_state("averaged", AveragedModel(self.model, self.average))
            self.averaged: AveragedModel

    def _grow(self) -> None:
        if self.average is not None:
            self.averaged.grow(len(self.labels), _twin_of(self.rng["init"]))
        self.model.grow(len(self.labels), self.rng["init"])
        pad_optimizer_state(self.optimizer)

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
        loss.backward()
        self.scheme.adjust_gradients(stream, ctx)
        self.optimizer.step()
        self.scheme.after_step(ctx)
        self.optimizer.zero_grad()
        self.model.version += 1
        if self.average is not None:
            self.averaged.follow(self.model)

    def _augmented(self, batch: Batch, augmentation: Augmentation) -> Batch:
        return Batch(augmentation.augment(batch.x, self.rng["augmentation"]), batch.y)

    def _answering_context(self, reading: Reading) -> Context:
        if reading == "net":
            return self._context()
        if self.average is None:
            raise InputError("this learner keeps no averaged net to answer from: create it with average=0.99")
        return dataclasses.replace(self._context(), model=self.averaged)

    def _context(self) -> Context:
        return Context(
            model=self.model,
            scheme=self.scheme,
            retrieval=self.retrieval,
            memory=self._memory,
            rng=self.rng,
            classes=len(self.labels),
            classes_total=max(self.classes_total or 0, len(self.labels)),
            iteration=self.iteration,
            slots_per_class=self._slots_per_class(),
            optimizer=self.optimizer,
            clock=self.clock,
        )


def _checked_average(average: float | None, answer_from: Reading | None) -> tuple[float | None, Reading]:
    """The decay and what answers, or an `InputError` where they do not go together."""
    if average is not None and (isinstance(average, bool) or not 0 < average < 1):
        raise InputError(f"average is {average!r}: need a decay between 0 and 1, such as 0.99, or None")
    if answer_from not in (None, "net", "averaged"):
        raise InputError(f"answer_from is {answer_from!r}: choose 'net' or 'averaged'")
    if average is None and answer_from == "averaged":
        raise InputError("answer_from is 'averaged', but nothing is averaged: give average=0.99 too")
    return average, answer_from or ("net" if average is None else "averaged")


def _twin_of(generator: torch.Generator) -> torch.Generator:
    """A generator that draws what this one will, and leaves it alone."""
    twin = torch.Generator()
    twin.set_state(generator.get_state())
    return twin
