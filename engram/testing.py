"""Checks that every method must pass, for methods of this package and of others.

    from engram.methods import METHODS
    from engram.testing import check_method

    METHODS["mine"] = Method(...)
    check_method("mine")

Each check builds small learners of the method and feeds them a toy stream of separable classes.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engram.augmentations import RandomView
from engram.base.batch import Batch
from engram.base.settings import schema_of
from engram.classifiers import FromScratch
from engram.learner import Learner
from engram.methods import find_method
from engram.persistence.state import flatten
from engram.schemes import MomentumDistillation
from engram.streams.dataset import Array
from engram.summarize import StreamSummarizer

ToyBatch = tuple[Array, list[int]]
Make = Callable[..., Learner]


def check_method(method: str, **options: Any) -> None:
    """Run every check on a registered method.

    Raises an AssertionError that names the check and what went wrong.

    Args:
        method: name of the method.
        options: options of each `Learner` that is made.
    """

    def make(**changes: Any) -> Learner:
        return Learner(method, **small_options(method) | options | changes)

    for check in CHECKS:
        try:
            check(make)
        except AssertionError as error:
            raise AssertionError(f"{method}: {check.__name__}: {error}") from error


def small_options(method: str) -> dict[str, Any]:
    """Return options that make a learner quick and use all of it on a toy stream.

    Fewer images are replayed than are in memory, so that retrieval has a choice, and queues fill within a few batches.
    Views differ little from their images: toy patterns do not survive small crops, shifts, flips or fewer pixels.
    """
    composition = find_method(method)
    options: dict[str, Any] = {"memory_size": 8, "boundary_gap": 5, "net": {"width": 8}}
    if "replay" in schema_of(composition.scheme):
        options["scheme"] = {"replay": 5}
    if composition.summarize is StreamSummarizer:
        options |= {"theta": {"width": 8}, "summarize": {"queue": 8, "ready": 4, "interval": 3}}
    gentle = {"crop_scale": (0.8, 1.0), "flip": 0.0}
    if composition.augment is RandomView:
        options |= {"augment": {"view": gentle, "side": 1.0}, "classifier": {"mirror": False}}
    if composition.scheme is MomentumDistillation:
        options["scheme"] |= {"augment": gentle, "learning_rate": 0.003}
    if composition.classifier is FromScratch:
        options["classifier"] = {"epochs": 32, "shift": 0, "flip": 0.0}
    if composition.repeats > 1:
        options["repeats"] = 2
    return options


def toy_images(labels: list[int], seed: int) -> Array:
    """Return noise around one fixed pattern per class, 1×16×16, uint8."""
    patterns = np.random.default_rng(123).integers(0, 200, (64, 1, 16, 16))
    noise = np.random.default_rng(seed).integers(0, 56, (len(labels), 1, 16, 16))
    return (patterns[labels] + noise).astype(np.uint8)


def toy_stream(tasks: int, batches: int, classes: int = 2, batch: int = 4) -> Iterator[ToyBatch]:
    """Yield `batches` batches per task; the classes of a task come in turn."""
    for task in range(tasks):
        for index in range(batches):
            labels = [task * classes + (index * batch + i) % classes for i in range(batch)]
            yield toy_images(labels, seed=1000 * task + index), labels


def feed(learner: Learner, stream: Iterable[tuple[Any, Any]]) -> Learner:
    for x, y in stream:
        learner.observe(x, y)
    return learner


def fingerprint(learner: Learner) -> str:
    """Return a hash of the whole state of a learner, without its times."""
    tree = learner.state()
    del tree["seconds"]
    tensors, skeleton = flatten(tree)
    digest = hashlib.sha256(repr(skeleton).encode())
    for name in sorted(tensors):
        digest.update(tensors[name].detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def learns_separable_classes(make: Make) -> None:
    """Check that accuracy on an iid stream is far above chance, by the median of five readings.

    A single reading can be low, because augmentation destroys these patterns.
    """
    learner = make()
    truth, readings = [0, 1, 2, 3] * 8, []
    for index in range(60):
        labels = [(index + i) % 4 for i in range(8)]
        learner.observe(toy_images(labels, index), labels)
        if index >= 55:
            readings.append(np.mean(np.array(learner.predict(toy_images(truth, 900))) == truth))
    right = float(np.median(readings))
    assert right > 0.7, f"{100 * right:.0f} % right on four classes that noise does not confuse"


def resumes_exactly(make: Make) -> None:
    """Check that a learner that is saved and loaded, also after new classes, goes on as if it had never stopped."""
    batches = list(toy_stream(2, 8))
    whole = feed(make(), batches)
    for stop in (5, 10):
        with tempfile.TemporaryDirectory() as folder:
            stopped = feed(make(), batches[:stop])
            stopped.save(Path(folder) / "saved")
            nets: Any = stopped.custom_nets
            resumed = feed(Learner.load(Path(folder) / "saved", **nets), batches[stop:])
        assert fingerprint(resumed) == fingerprint(whole), f"stopping after batch {stop} changed the outcome"


def is_deterministic(make: Make) -> None:
    """Check that a seed decides everything, and that the global generators are left alone."""
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    numpy_state = np.random.get_state()[1].tolist()  # type: ignore[index]
    first = fingerprint(feed(make(seed=3), toy_stream(2, 6)))
    assert torch.equal(torch.random.get_rng_state(), state), "torch's global generator was used"
    assert np.random.get_state()[1].tolist() == numpy_state, "numpy's global generator was used"  # type: ignore[index]
    torch.manual_seed(2)
    assert fingerprint(feed(make(seed=3), toy_stream(2, 6))) == first, "the same seed gave another outcome"
    assert fingerprint(feed(make(seed=4), toy_stream(2, 6))) != first, "the seed has no influence"


def a_failed_batch_changes_nothing(make: Make) -> None:
    """Check that a batch that fails at its very end, also the first one or one of new classes, leaves no trace."""
    disturbed, undisturbed = make(), make()
    for index, (x, y) in enumerate(toy_stream(2, 6)):
        if index in (0, 4, 6):
            _observe_and_fail(disturbed, toy_images([y[0], 9], 500), [y[0], 9])
        disturbed.observe(x, y)
        undisturbed.observe(x, y)
    assert fingerprint(disturbed) == fingerprint(undisturbed), "a batch that failed left a trace"
    x = toy_images([0, 1, 2, 3], 77)
    assert np.array_equal(disturbed.predict(x), undisturbed.predict(x)), "a batch that failed changed the answers"


def _observe_and_fail(learner: Learner, x: Array, y: list[int]) -> None:
    whole = learner._store_batch

    def fail(stream: Batch) -> None:
        whole(stream)
        raise _PretendedError

    learner._store_batch = fail  # type: ignore[method-assign]
    try:
        learner.observe(x, y)
    except _PretendedError:
        del learner._store_batch
    else:
        raise AssertionError("the pretended failure did not reach the caller")


class _PretendedError(Exception):
    """A failure that a check pretends."""


def predicting_changes_nothing(make: Make) -> None:
    learner = feed(make(), toy_stream(2, 6))
    x = toy_images([0, 1, 2, 3], 77)
    before, answer = fingerprint(learner), learner.predict(x)
    learner.predict_proba(x)
    learner.footprint()
    assert fingerprint(learner) == before, "predicting changed the learner's state"
    assert np.array_equal(learner.predict(x), answer), "predicting twice gave two answers"
    assert learner.model.net.training, "predicting left the net in eval mode"


def bytes_stay_bounded(make: Make) -> None:
    """Check that nothing grows once every class was seen and the memory is full."""
    learner = make(memory_size=6, codec="uint8")  # whose records have all one size
    sizes = []
    for index in range(36):
        labels = [index % 3, (index + 1) % 3]
        learner.observe(toy_images(labels, index), labels)
        sizes.append(learner.footprint()["total"])
    assert sizes[-1] == sizes[24], f"the footprint grew from {sizes[24]} to {sizes[-1]} bytes"


def takes_any_stream(make: Make) -> None:
    """Check streams of single images, of one class, and with a late class, also with a memory of one image."""
    for memory_size in (1, 3):
        learner = make(memory_size=memory_size)
        for index in range(8):
            learner.observe(toy_images([0], index), [0])
        assert learner.predict(toy_images([0], 99)).tolist() == [0], "it does not know the only class there is"
        for index in range(3):
            learner.observe(toy_images([5], index), [5])
        assert learner.labels == [0, 5], f"it knows {learner.labels}"
        assert set(learner.predict(toy_images([0, 5], 98))) <= {0, 5}, "it predicts a class never seen"


def gives_labels_back(make: Make) -> None:
    learner = make()
    for x, y in toy_stream(1, 4):
        learner.observe(x, [["cat", "dog"][label] for label in y])
    answers = learner.predict(toy_images([0, 1], 50))
    assert set(answers) <= {"cat", "dog"}, f"labels came back as {answers}"


def keeps_nothing_of_the_callers(make: Make) -> None:
    """Check that arrays of any layout are taken, and that changing them afterwards changes nothing."""
    plain, odd = make(), make()
    for x, y in toy_stream(1, 5):
        plain.observe(x, y)
        buffer = np.zeros((len(x), 1, 16, 32), np.uint8)
        buffer[..., ::-2] = x
        view = buffer[..., ::-2]
        view.flags.writeable = False
        odd.observe(view, np.array(y))
        buffer[:] = 0
    assert fingerprint(plain) == fingerprint(odd), "the layout of the caller's array, or changing it later, matters"


CHECKS: tuple[Callable[[Make], None], ...] = (
    learns_separable_classes,
    resumes_exactly,
    is_deterministic,
    a_failed_batch_changes_nothing,
    predicting_changes_nothing,
    bytes_stay_bounded,
    takes_any_stream,
    gives_labels_back,
    keeps_nothing_of_the_callers,
)
