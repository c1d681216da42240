"""The learner: what a user holds. It composes the parts of a method and owns their state."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from rich.progress import track
from torch import Tensor, nn

from engram.base.averaged import AveragedModel
from engram.base.batch import Batch, choose
from engram.base.context import StepContext
from engram.base.devices import using_threads
from engram.base.divergence import require_bounded, require_finite_loss
from engram.base.errors import InputError, NotReadyError
from engram.base.exclusive import exclusive
from engram.base.initialization import materialize
from engram.base.interfaces import Augmentation, Classifier, Policy, Retrieval, Scheme, StoreReport
from engram.base.model import Model
from engram.base.rng import twin_of
from engram.base.settings import Count, Natural, as_plain_data, check_value
from engram.base.validation import Labels, check_images, likeliest_labels
from engram.deployment import Predictor, answering_from, export
from engram.latents.consumer import LatentConsumer
from engram.methods import ROLES, Composition, Method, compose, restore_part
from engram.nets import ReducedResNet18, require_size
from engram.options import LearnerArguments, LearnerOptions, PartOptions, Reading, describe_limit, resolve_options
from engram.persistence.restore import restored
from engram.persistence.state import Tree, pad_optimizer_state
from engram.recommending import recommend
from engram.streams import BATCH, ImageReading, read_if_files, to_batches


class Learner(LatentConsumer):
    """Learns from a stream seen once, with a small memory.

    Examples:
        >>> import numpy as np
        >>> from engram import Learner
        >>> learner = Learner("scr+ssd", memory_size=4, net={"width": 8}, theta={"width": 8})
        >>> images = np.random.default_rng(0).random((8, 1, 16, 16), dtype=np.float32)
        >>> learner.observe(images, ["cat", "dog"] * 4)
        >>> set(learner.predict(images)) <= {"cat", "dog"}
        True

    Args:
        method: a name listed by `engram methods`, or a `Method` of your own; er-ema if neither this nor a scheme is
            given.
        arguments: the options in `engram.options`, by name: memory_size, memory_bytes, codec, seed, device, average and
            others; and for each part (scheme, augment, retrieval, policy, summarize, classifier) its settings by name,
            or a part of your own. `net` and `theta` take settings, or a module of your own, of which `freeze` freezes a
            part.
    """

    saved_as, batch_method = "learner", "observe"
    options: LearnerOptions

    def __init__(self, method: str | Method | None = None, **arguments: Unpack[LearnerArguments]) -> None:
        roles = PartOptions.__annotations__
        given: dict[str, Any] = {name: value for name, value in arguments.items() if name in roles}
        asked = {name: value for name, value in arguments.items() if name not in given}
        nets = self._take_nets({name: given.pop(name, None) for name in ("net", "theta")})
        freeze = given.pop("freeze", None)
        composed = compose(method, given | nets)
        self.composition: Composition
        self.composition, asked = self._begin_above(freeze, composed, given | nets, asked)
        options = resolve_options(LearnerOptions, self.composition.method.with_defaults(asked))
        options["repeats"] = options["repeats"] or self.composition.repeats
        options["answer_from"] = options["answer_from"] or ("net" if options["average"] is None else "averaged")
        super().__init__(options)
        self.settings = self.composition.settings
        self._name_custom_nets()
        parts = self.composition.make_parts()
        self.scheme: Scheme = parts["scheme"]
        self.augmentation: Augmentation | None = parts.get("augment")
        self.retrieval: Retrieval = parts["retrieval"]
        self.policy: Policy = parts["policy"]
        self.classifier: Classifier = parts["classifier"]
        self.summarizer = parts.get("summarize")
        saved_as = {"augment": "augmentation", "summarize": "summarizer"}
        self._add_parts(**{saved_as.get(role, role): parts.get(role) for role in ROLES})

    @property
    def method(self) -> str | None:
        """The name of the method, or None for a composition of the caller's own."""
        return self.composition.name

    @property
    def reading(self) -> ImageReading:
        """How image files are read: in the size of the images it knows, if it knows any."""
        return ImageReading(size=self.image_shape[1] if self.image_shape else None, fit=self.options["fit"])

    def __repr__(self) -> str:
        seen = f"{self.iteration} batches, {len(self.labels)} classes seen"
        name = self.method or "own composition"
        return f"Learner({name!r}, {describe_limit(self.options)}: {seen}, on {self.device})"

    @exclusive
    def observe(self, x: Any, y: Any) -> None:
        """Learn from one batch: images (N,C,H,W), float in [0,1] or uint8, and their labels, all int or all str.

        If it raises, the learner is as it was before.
        """
        with using_threads(self.options["threads"]), self._whole_batch():
            stream = self._prepare_batch(x, y)
            with self.clock("train"):
                for _ in range(self.options["repeats"] or 1):
                    self._train(stream)
            self._store_batch(stream)

    partial_fit = observe

    def learn(
        self,
        source: Any,
        *,
        batch: int = BATCH,
        size: int | None = None,
        seed: int = 0,
        skip_damaged: bool = False,
        progress: bool = False,
    ) -> int:
        """Learn from every image of a source once, and return the number of images.

        Args:
            source: a folder with one folder of images per class, a pair `(x, y)`, a torch or Hugging Face data set, a
                DataLoader, or any iterable of batches `(images, labels)`.
            batch: number of images in a batch, where the source has no batches of its own.
            size: pixels per side of images from files and of PIL images; those the learner knows if not given, else 32.
            seed: seed of the order of images, where the source is a folder or a data set.
            skip_damaged: leave out image files that cannot be read, instead of stopping.
            progress: show a progress bar.
        """
        known = self.reading
        reading = ImageReading(batch, size or known.size, known.fit, seed, skip_damaged)
        batches = to_batches(source, reading)
        seen = 0
        for x, y in track(batches, "learning", batches.count, disable=not progress):
            if len(y):
                self.observe(x, y)
                seen += len(y)
        self.tell_if_not_summarized()
        return seen

    @exclusive
    def rehearse(self, steps: int, batch: int = 10) -> None:
        """Train on the memory alone.

        Args:
            steps: number of training steps.
            batch: number of memory images that take the place of a stream batch in each step.
        """
        check_value("steps", Natural, steps)
        check_value("batch", Count, batch)
        memory = self.memory
        if not memory.size:
            raise InputError("the memory is empty: there is nothing to rehearse")
        with using_threads(self.options["threads"]), self._whole_batch(), self.clock("train"):
            for _ in range(steps):
                self._train(memory.read(choose(batch, memory.size, self.rng["replay"])))

    @exclusive
    def scores(self, x: Any, *, answer_from: Reading | None = None) -> Tensor:
        """Return scores (N,classes) in the order of `labels`; higher is likelier, -inf where it cannot be predicted.

        Heads made for `classes_total` classes also score those not seen yet, in the columns behind.

        Args:
            x: images, as `observe` takes them; or the path of an image file, or a list of paths.
            answer_from: the net that answers, if not the one the learner was told to use.
        """
        self._require_observed("nothing can be predicted")
        images = check_images(read_if_files(x, self.reading), self.image_shape, allow_empty=True)
        ctx = self._answering_context(answer_from or self.options["answer_from"] or "net")
        with using_threads(self.options["threads"]):
            if len(images):
                return self.classifier.scores(self._as_seen(images), ctx)
            with suppress(NotReadyError):
                return self.classifier.scores(self._as_seen(torch.zeros(1, *images.shape[1:])), ctx)[:0]
        return torch.zeros(0, len(self.labels))

    def predict(self, x: Any, *, answer_from: Reading | None = None) -> Labels:
        """Return the likeliest label of each image, as given to `observe`, in an array of integers or strings.

        Heads made for `classes_total` classes may score a class highest that was not seen yet. The label is then None,
        and the array is one of objects.
        """
        return likeliest_labels(self.scores(x, answer_from=answer_from), self.labels)

    def predict_proba(self, x: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the softmax of the scores, in the order of `labels`."""
        probabilities: np.ndarray[Any, np.dtype[np.float32]] = self.scores(x).softmax(1).cpu().numpy()
        return probabilities

    @exclusive
    def predictor(self) -> Predictor:
        """Return a predictor: the net, its head and the labels as they are now. It cannot learn."""
        self._require_observed("nothing can be predicted")
        assert self.image_shape is not None, "it has observed something"
        ctx = self._answering_context(self.options["answer_from"] or "net")
        config = {"net": as_plain_data(self.settings["net"]), "fit": self.options["fit"], "freeze": self.freeze}
        with using_threads(self.options["threads"]):
            return answering_from(ctx, self.classifier, self.labels, self.image_shape, config, self.front)

    def export(self, path: str | Path) -> None:
        """Write what answers to a file that other programs run: `.onnx`, or `.pt2` for torch.export."""
        export(self.predictor(), path)

    def save(self, path: str | Path, extra: Tree = None, *, inference_only: bool = False) -> None:
        """Save everything that is needed to continue exactly from here.

        Args:
            path: folder of the checkpoint; the save before is kept there too.
            extra: numbers, strings, lists, dicts and tensors of your own; `load_with_extra` returns them. What could
                not be loaded again is refused.
            inference_only: save only what answers, for `Predictor.load`; it cannot learn, and `extra` is not saved.
        """
        if inference_only:
            self.predictor().save(path)
        else:
            super().save(path, extra)

    @classmethod
    def recommended(
        cls, limit: int | str, *, classes: int, image_size: int = 32, **arguments: Unpack[LearnerArguments]
    ) -> Learner:
        """Return a new learner as `recommend` says; arguments given here replace those of the recommendation."""
        found: Any = recommend(limit, classes=classes, image_size=image_size).arguments
        return cls(**found | arguments)

    @classmethod
    def load(
        cls,
        path: str | Path,
        device: str | None = None,
        *,
        net: nn.Module | None = None,
        theta: nn.Module | None = None,
    ) -> Learner:
        """Return the learner saved at `path`, or by the run in that folder, on its device or on the one given.

        Of a net of your own only the weights are saved, so give one of the same shape to take them. Parts of your own
        are found again if the module that defines them is imported.
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
        """Return the learner saved at `path`, and the extra that was saved along with it."""
        return restored(cls, Path(path).expanduser(), device, {"net": net, "theta": theta})

    def config(self) -> dict[str, Any]:
        return {"method": self.method} | super().config() | self.composition.saved_parts()

    @classmethod
    def arguments_from(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: restore_part(name, value) if name in ROLES and "class" in value else value
            for name, value in config.items()
        }

    def _build(self, image_shape: tuple[int, int, int]) -> None:
        channels, size, _ = image_shape
        own = self._own_backbone(image_shape)
        if own is not None and self.augmentation:
            require_size(own, image_shape, self.augmentation.output_size(size), self.device)
        super()._build(image_shape)
        if own is not None:
            self.model = Model(own, own.feature_width, self.device, self.precision)
        else:
            made = materialize(
                lambda: ReducedResNet18(channels, size, **self.settings["net"]), self.rng["init"], self.device
            )
            backbone = made.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self.model = Model(backbone, made.feature_width, self.device, self.precision)
        self.model.net.zero_grad()
        self.optimizer = self.scheme.build(self.model, self.rng)
        self.model.grow(self.options["classes_total"] or 0, self.rng["init"])
        self.add_state("model", self.model)
        self.add_state("optimizer", self.optimizer, count_as="optimizer")
        if self.options["average"] is not None:
            self.add_state("averaged", AveragedModel(self.model, self.options["average"]))
            self.averaged: AveragedModel

    def _grow(self) -> None:
        if self.options["average"] is not None:
            self.averaged.grow(len(self.labels), twin_of(self.rng["init"]))
        self.model.grow(len(self.labels), self.rng["init"])
        pad_optimizer_state(self.optimizer)

    def _train(self, stream: Batch) -> None:
        ctx = self._context()
        replay = None
        self.model.net.train()
        self.scheme.before_retrieval(stream, ctx)
        if ctx.memory.size and (wanted := self.scheme.replay_size(ctx)):
            draws = [self.retrieval.select(stream, wanted, ctx) for _ in range(self.scheme.draws)]
            replay = ctx.memory.read(torch.cat(draws))
        if self.augmentation:
            stream = self._augmented(stream, self.augmentation)
            replay = None if replay is None else self._augmented(replay, self.augmentation)
        if (loss := self.scheme.loss(stream, replay, ctx)) is None:
            return
        require_finite_loss(loss, self.iteration)
        loss.backward()
        self.scheme.adjust_gradients(stream, ctx)
        self.optimizer.step()
        require_bounded(self.model.net, self.iteration)
        self.scheme.after_step(ctx)
        self.optimizer.zero_grad()
        self.model.version += 1
        if self.options["average"] is not None:
            self.averaged.follow(self.model)

    def _augmented(self, batch: Batch, augmentation: Augmentation) -> Batch:
        return Batch(augmentation.augment(batch.x, self.rng["augmentation"]), batch.y, logits=batch.logits)

    def _offer(self, stream: Batch, ctx: StepContext) -> StoreReport:
        return self.policy.store(self.scheme.with_logits(stream), ctx)

    def _answering_context(self, reading: Reading) -> StepContext:
        if check_value("answer_from", Reading, reading) == "net":
            return self._context()
        if self.options["average"] is None:
            raise InputError("this learner keeps no averaged net to answer from: create it with average=0.99")
        return dataclasses.replace(self._context(), model=self.averaged)

    def _context(self) -> StepContext:
        return StepContext(
            model=self.model,
            averaged=None if self.options["average"] is None else self.averaged,
            scheme=self.scheme,
            retrieval=self.retrieval,
            optimizer=self.optimizer,
            classes_total=max(self.options["classes_total"] or 0, len(self.labels)),
            **self._memory_context(),
        )
