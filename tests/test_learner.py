"""The learner's contracts: refusals before any change, purity, determinism, exact resume, bytes."""

import copy
import logging
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engram import ExportedMemory, InputError, Learner, Predictor, RunConfig, run
from engram.base.errors import NonFiniteLossError
from engram.base.interfaces import Classifier
from engram.methods import find_method
from engram.persistence.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from engram.persistence.state import flatten
from engram.testing import small_options
from tests.helpers import SMALL_THETA, feed, fingerprint, small_learner, toy_images, toy_stream

METHODS = ["scr", "scr+dynamic", "scr+ssd"]


GOOD = toy_images([0, 1], 5)


@pytest.mark.parametrize("observed", [False, True], ids=["fresh", "in mid-stream"])
@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        (np.full((2, 1, 16, 16), np.nan, np.float32), [0, 1], "NaN"),
        (np.full((2, 1, 16, 16), np.inf, np.float32), [0, 1], "NaN or inf"),
        (np.full((2, 1, 16, 16), 2.0, np.float32), [0, 1], r"\[0,1\].*divide by 255"),
        (np.full((2, 1, 16, 16), -0.1, np.float32), [0, 1], r"\[0,1\]"),
        (np.zeros((2, 16, 16), np.uint8), [0, 1], r"\(N,C,H,W\)"),
        (np.zeros((2, 2, 16, 16), np.uint8), [0, 1], "channels|began with"),
        (np.zeros((2, 16, 16, 3), np.uint8), [0, 1], "transpose|began with"),
        (np.zeros((2, 1, 16, 20), np.uint8), [0, 1], "square|began with"),
        (np.zeros((2, 1, 8, 8), np.uint8), [0, 1], "16 px|began with"),
        (np.zeros((2, 1, 16, 16), np.int64), [0, 1], "uint8"),
        (np.zeros((0, 1, 16, 16), np.uint8), [], "empty"),
        ("cat.png", [0], "tensor or an array"),
        (GOOD, [0], "2 images came with 1 labels"),
        (GOOD, [0, 1, 2], "2 images came with 3 labels"),
        (GOOD, [0, "cat"], "mix"),
        (GOOD, [0.5, 1.0], "float"),
        (GOOD, torch.tensor([0.5, 1.0]), "integers or strings"),
        (GOOD, [True, False], "bool"),
        (GOOD, [None, 1], "NoneType"),
        (GOOD, 3, "sequence"),
    ],
)
def test_bad_input_is_refused_before_anything_changes(x: Any, y: Any, reason: str, observed: bool) -> None:
    learner = small_learner()
    if observed:
        feed(learner, toy_stream(1, 3))
    before = fingerprint(learner)
    with pytest.raises(InputError, match=reason):
        learner.observe(x, y)
    assert fingerprint(learner) == before


def test_a_stream_keeps_its_shape_and_its_kind_of_labels() -> None:
    learner = feed(small_learner(), toy_stream(1, 2))
    before = fingerprint(learner)
    with pytest.raises(InputError, match="began with"):
        learner.observe(np.zeros((1, 3, 16, 16), np.uint8), [0])
    with pytest.raises(InputError, match="mix integers and strings"):
        learner.observe(toy_images([0], 0), ["zero"])
    assert fingerprint(learner) == before


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("stop", [0, 1, 7, 10, 14])
def test_resuming_equals_never_having_stopped(method: str, stop: int, tmp_path: Path) -> None:
    """Stops before anything, after one batch, between rounds, at a boundary, after growth."""
    batches = list(toy_stream(2, 10))
    whole = feed(small_learner(method, boundary_gap=5), batches)
    first = feed(small_learner(method, boundary_gap=5), batches[:stop])
    first.save(tmp_path)
    resumed = feed(Learner.load(tmp_path), batches[stop:])
    assert fingerprint(resumed) == fingerprint(whole)
    if method == "scr+ssd":
        assert whole.rounds >= 4
    x = toy_images([0, 1, 2, 3], 77)
    assert torch.equal(resumed.scores(x), whole.scores(x))


def test_resuming_in_a_new_process_is_exact(tmp_path: Path) -> None:
    feed(small_learner(), list(toy_stream(2, 10))[:13]).save(tmp_path)
    code = (
        "import sys, torch; from engram import Learner; from tests.helpers import *;"
        "torch.set_num_threads(1);"
        "print(fingerprint(feed(Learner.load(sys.argv[1]), list(toy_stream(2, 10))[13:])))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=Path(__file__).parents[1]
    )
    assert ran.stdout.strip() == fingerprint(feed(small_learner(), toy_stream(2, 10))), ran.stderr


def test_saving_while_going_on_does_not_disturb(tmp_path: Path) -> None:
    saving = small_learner()
    for x, y in toy_stream(2, 8):
        saving.observe(x, y)
        saving.save(tmp_path)
    assert fingerprint(saving) == fingerprint(feed(small_learner(), toy_stream(2, 8)))


def test_loading_elsewhere_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(small_learner(), toy_stream(1, 2)).save(tmp_path)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    with caplog.at_level(logging.WARNING):
        Learner.load(tmp_path)
    assert "threads was 1, is 7" in caplog.text


def test_floats_and_bytes_of_the_same_pixels_learn_alike_but_for_the_queue() -> None:
    as_bytes, as_floats = small_learner(), small_learner()
    for x, y in toy_stream(1, 8):
        as_bytes.observe(x, y)
        as_floats.observe(torch.tensor(x) / 255, torch.tensor(y))
    x = toy_images([0, 1], 4)
    assert torch.equal(as_bytes.scores(x), as_floats.scores(x))
    assert as_floats.footprint()["queue"] == 4 * as_bytes.footprint()["queue"]


def test_scikit_learn_s_name_does_the_same() -> None:
    ours, theirs = small_learner("er"), small_learner("er")
    for x, y in toy_stream(1, 3):
        ours.observe(x, y)
        theirs.partial_fit(x, y)
    assert fingerprint(ours) == fingerprint(theirs)


def test_labels_come_back_as_given() -> None:
    learner = small_learner()
    names = ["cat", "dog"]
    for x, y in toy_stream(1, 10):
        learner.observe(x, [names[label] for label in y])
    assert learner.labels == names
    answers = learner.predict(toy_images([0, 1] * 4, 50))
    assert answers.tolist() == names * 4


def test_predicting_before_learning_says_so_and_an_empty_batch_gives_an_empty_answer() -> None:
    with pytest.raises(InputError, match="call observe first"):
        small_learner().predict(GOOD)
    with pytest.raises(InputError, match="call observe first"):
        _ = small_learner().memory
    learner = feed(small_learner(), toy_stream(1, 2))
    assert learner.predict(np.zeros((0, 1, 16, 16), np.uint8)).tolist() == []
    assert learner.predict_proba(np.zeros((0, 1, 16, 16), np.uint8)).shape == (0, 2)
    for total, width in ((None, 2), (7, 7)):
        learner = feed(Learner("er", classes_total=total, memory_size=4, net={"width": 8}), toy_stream(1, 2))
        none, one = np.zeros((0, 1, 16, 16), np.uint8), toy_images([0], 3)
        assert learner.scores(none).shape[1] == learner.scores(one).shape[1] == width
    nothing_fits = small_learner("scr", memory_size=None, memory_bytes=100, codec="webp(90)")
    nothing_fits.observe(toy_images([0, 1], 0), [0, 1])
    assert nothing_fits.predict(none).tolist() == []


def test_probabilities_sum_to_one() -> None:
    learner = feed(small_learner(), toy_stream(2, 6))
    np.testing.assert_allclose(learner.predict_proba(toy_images([0, 1, 2], 4)).sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_one_image_batches_a_single_class_and_a_late_class(method: str) -> None:
    learner = small_learner(method, memory_size=3)
    for index in range(12):
        learner.observe(toy_images([0], index), [0])
    assert learner.predict(toy_images([0], 99)).tolist() == [0]
    learner.observe(toy_images([5], 0), [5])
    assert learner.labels == [0, 5]
    if method != "scr":
        assert len(learner.memory.claimed_by(1)) == 1


def test_footprint_counts_every_part_and_sums_up() -> None:
    learner = feed(small_learner(memory_size=8, slots_per_class=1), toy_stream(1, 12))
    counted = learner.footprint()
    image = 16 * 16
    assert counted["images"] == 8 * 4 * image
    assert counted["queue"] == 2 * 8 * image
    assert counted["working_copies"] == 2 * 2 * 4 * image
    assert counted["net"] == sum(t.nbytes for t in learner.model.net.state_dict().values())
    theta = sum(p.nbytes for p in learner.summarizer.theta.parameters())
    assert counted["theta"] == counted["optimizer"] == theta
    assert counted["originals"] == counted["snapshots"] == 0
    assert counted["total"] == sum(size for name, size in counted.items() if name != "total")


class Watcher(Classifier):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_boundary(self, ctx: Any) -> None:
        self.heard.append(("boundary", ctx.iteration))

    def on_new_classes(self, new: list[int], ctx: Any) -> None:
        self.heard.append((new, ctx.iteration))


def watched(boundary_gap: int) -> Learner:
    from dataclasses import replace

    return Learner(
        replace(find_method("scr"), classifier=Watcher), memory_size=4, net={"width": 8}, boundary_gap=boundary_gap
    )


def test_boundaries_are_inferred_from_new_classes_at_most_one_a_gap() -> None:
    learner = watched(boundary_gap=4)
    for labels in ([0], [1], [0], [0], [2], [3], [0], [0], [0], [4]):
        learner.observe(toy_images(labels, 0), labels)
    assert learner.classifier.heard == [
        ([0], 0),
        ([1], 1),
        ("boundary", 4),
        ([2], 4),
        ([3], 5),
        ("boundary", 9),
        ([4], 9),
    ]


def test_saying_boundaries_stops_inferring_them() -> None:
    learner = watched(boundary_gap=1)
    learner.boundary()
    for labels in ([0], [1], [2]):
        learner.observe(toy_images(labels, 0), labels)
    learner.boundary()
    assert [entry for entry in learner.classifier.heard if entry[0] == "boundary"] == [("boundary", 3)]


def test_settings_are_checked_by_name_and_written_out() -> None:
    with pytest.raises(InputError, match="did you mean 'interval'"):
        Learner("scr+ssd", summarize={"intervall": 3})
    with pytest.raises(InputError, match="did you mean 'scr\\+ssd'"):
        Learner("scr+sdd")
    with pytest.raises(InputError, match="has no summarize"):
        Learner("scr", summarize={"interval": 3})
    with pytest.raises(InputError, match="slots_per_class"):
        Learner("scr", slots_per_class=0)
    with pytest.raises(InputError, match="memory_size"):
        Learner("scr", memory_size=0)
    for repeats in (0, 2**40):
        with pytest.raises(InputError, match="repeats"):
            Learner("scr", repeats=repeats)
    for method in ("er", "scr", "dvc", "ocm", "a-gem"):
        with pytest.raises(InputError, match="replay is -1"):
            Learner(method, scheme={"replay": -1})
    with pytest.raises(InputError, match="width is 4"):
        Learner("er", net={"width": 4})
    with pytest.raises(InputError, match="n_ops"):
        Learner("rar", augment={"n_ops": 2**40})
    with pytest.raises(InputError, match="codec"):
        Learner("scr", codec="gif")
    config = Learner("scr+ssd", scheme={"augment": {"hue": 0.2}}).config()
    assert config["scheme"]["augment"]["hue"] == 0.2
    assert config["scheme"]["augment"]["gray"] == 0.2
    assert config["summarize"]["gamma"] == 1.0
    assert Learner(**config).config() == config


@pytest.mark.parametrize(
    ("method", "options", "reason"),
    [
        ("er", {"boundary_gap": 0}, "boundary_gap is 0: need a whole number of at least 1"),
        ("er", {"classes_total": -1}, "classes_total is -1: need a whole number of at least 1, or none"),
        ("er", {"memory_size": 8.0}, "memory_size is 8.0: need a whole number of at least 1, or none"),
        ("er", {"memory_size": "8"}, "memory_size is '8': need a whole number"),
        ("er", {"seed": True}, "seed is True: need a whole number"),
        (
            "scr+ssd",
            {"slots_per_class": 0},
            "slots_per_class is 0: need a whole number of at least 1, or 'auto', or none",
        ),
        ("scr", {"scheme": {"replay": 0}}, "scheme.replay is 0: need a whole number of at least 1"),
        ("a-gem", {"scheme": {"replay": 0}}, "scheme.replay is 0: need a whole number of at least 1"),
        ("scr+ssd", {"summarize": {"interval": "6"}}, "summarize.interval is '6': need a whole number of at least 1"),
        ("scr+ssd", {"summarize": {"interval": 6.5}}, "interval is 6.5: need a whole number"),
        ("scr+ssd", {"summarize": {"fast": 1}}, "fast is 1: need true or false"),
        ("scr+ssd", {"summarize": {"gamma": True}}, "gamma is True: need a number"),
        ("scr", {"scheme": {"augment": {"flip": "often"}}}, "flip is 'often': need a number"),
    ],
)
def test_options_under_which_a_method_is_none_are_refused(method: str, options: dict, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        Learner(method, **options)


def test_the_optimizers_state_comes_back_in_the_layout_of_its_parameter(tmp_path: Path) -> None:
    learner = feed(Learner("ocm", memory_size=4, net={"width": 8}), toy_stream(1, 2))
    learner.save(tmp_path / "l")
    loaded = Learner.load(tmp_path / "l")
    layouts = [[entry["exp_avg"].stride() for entry in one.optimizer.state.values()] for one in (learner, loaded)]
    assert layouts[0] == layouts[1]
    assert any(stride[1] == 1 and len(stride) == 4 for stride in layouts[0])


def test_a_composition_with_unmet_needs_is_refused() -> None:
    from dataclasses import replace

    with pytest.raises(InputError, match="needs claims"):
        Learner(replace(find_method("scr+ssd"), policy=find_method("scr").policy))


def feed_until_it_raises(observe_next: Callable[[], None]) -> None:
    while True:
        observe_next()


@pytest.mark.parametrize(
    "rates",
    [
        {"scheme": {"learning_rate": 1e10}},
        {"scheme": {"learning_rate": 1e30}},
        {"summarize": {"learning_rate": 1e10, "queue": 4, "ready": 2, "interval": 1}},
        {"summarize": {"theta_learning_rate": 1e10, "queue": 4, "ready": 2, "interval": 1}},
    ],
)
def test_a_batch_on_which_learning_diverges_is_not_learned(rates: dict[str, Any]) -> None:
    """The learner is as before it, batch-norm statistics included, and holds finite numbers alone."""
    learner, batches, before = small_learner(**rates), iter(toy_stream(2, 20)), ""

    def observe_next() -> None:
        nonlocal before
        before = fingerprint(learner)
        learner.observe(*next(batches))

    with pytest.raises(NonFiniteLossError, match="at batch"):
        feed_until_it_raises(observe_next)
    assert fingerprint(learner) == before
    tensors, _ = flatten(learner.state())
    assert all(tensor.isfinite().all() for name, tensor in tensors.items() if "priority" not in name)


def test_predicting_beside_learning_changes_neither() -> None:
    """Another thread predicts all the time while the learner learns; it would leave the net in eval mode."""
    batches = list(toy_stream(2, 30))
    alone = feed(small_learner("scr+ssd"), batches)
    shared, done, x = small_learner("scr+ssd"), threading.Event(), toy_images([0, 1, 2, 3], 7)
    answers: list[np.ndarray[Any, Any]] = []
    shared.observe(*batches[0])

    def predict() -> None:
        while not done.is_set():
            answers.append(shared.predict(x))

    thread = threading.Thread(target=predict)
    thread.start()
    feed(shared, batches[1:])
    done.set()
    thread.join()
    assert len(answers) > 5
    assert all(set(answer) <= {0, 1, 2, 3} for answer in answers)
    assert fingerprint(shared) == fingerprint(alone)


def test_a_learner_with_its_lock_can_be_copied() -> None:
    learner = feed(small_learner("er"), toy_stream(1, 2))
    twin = copy.deepcopy(learner)
    feed(learner, toy_stream(1, 2))
    assert fingerprint(feed(twin, toy_stream(1, 2))) == fingerprint(learner)


def test_auto_slots_shrink_as_classes_come() -> None:
    learner = small_learner("scr+dynamic", memory_size=12)
    for classes, slots in ((2, 6), (3, 4), (6, 2)):
        for index in range(20):
            labels = [(index + i) % classes for i in range(4)]
            learner.observe(toy_images(labels, index), labels)
        owned = torch.bincount(learner.memory.labels[learner.memory.claimed], minlength=classes)
        assert owned.tolist() == [slots] * classes


@pytest.mark.parametrize("method", ["er", "scr"])
def test_large_images_with_a_small_memory_load_again(method: str, tmp_path: Path) -> None:
    learner = Learner(method, memory_size=2, net={"width": 8})
    learner.observe(np.zeros((2, 3, 224, 224), dtype=np.uint8), [0, 1])
    learner.save(tmp_path)
    assert fingerprint(Learner.load(tmp_path)) == fingerprint(learner)


@pytest.mark.parametrize(
    "change",
    [
        {"scheme": {"projection": 60_000_000}},
        {"net": {"width": 100_000}},
        {"theta": {"depth": 10**11}},
        {"theta": {"width": 1_000_000}},
        {"memory_size": 10**12},
        {"classes_total": 10**12},
        {"device": "meta"},
        {"method": "no-such-method"},
    ],
)
def test_a_checkpoint_that_asks_for_too_much_is_refused_before_it_gets_it(change: dict, tmp_path: Path) -> None:
    feed(small_learner(), toy_stream(1, 4)).save(tmp_path)
    tree = read_checkpoint(tmp_path)
    for name, value in change.items():
        own = tree["learner"]["config"]
        own[name] = own[name] | value if isinstance(value, dict) else value
    write_checkpoint(tmp_path, tree)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError, match="does not hold a learner"):
        Learner.load(tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


@pytest.mark.parametrize("shape", [[1, 0, 16], [1, 16, 100_000], [1, 40_000, 40_000], [3], "abc", [1, 16.5, 16]])
def test_a_checkpoint_of_impossible_images_is_refused(shape: Any, tmp_path: Path) -> None:
    feed(small_learner("er"), toy_stream(1, 4)).save(tmp_path)
    tree = read_checkpoint(tmp_path)
    tree["learner"]["image_shape"] = shape
    write_checkpoint(tmp_path, tree)
    with pytest.raises(CheckpointError):
        Learner.load(tmp_path)


def test_numbers_that_numpy_made_are_settings_like_others(tmp_path: Path) -> None:
    eight, four = np.int64(8), np.int64(4)
    summarize = {"queue": eight, "ready": four, "interval": np.int32(3), "gamma": np.float32(0.5)}
    options = {"memory_size": eight, "slots_per_class": np.int64(2), "seed": four, "boundary_gap": eight}
    learner = feed(small_learner("scr+ssd", **options, summarize=summarize), toy_stream(tasks=1, batches=3))
    learner.save(tmp_path)
    plain = small_learner(
        memory_size=8, slots_per_class=2, seed=4, boundary_gap=8, summarize=SMALL_THETA["summarize"] | {"gamma": 0.5}
    )
    assert fingerprint(Learner.load(tmp_path)) == fingerprint(feed(plain, toy_stream(tasks=1, batches=3)))


@pytest.mark.parametrize("method", ["scr+ssd", "er", "a-gem", "ewc++", "ocm"])
def test_nothing_but_what_is_counted_stays_between_batches(method: str) -> None:
    """Gradients are no state."""
    learner = feed(Learner(method, **small_options(method)), toy_stream(tasks=2, batches=6))
    nets = [learner.model.net] + ([learner.summarizer.theta] if learner.summarizer else [])
    assert all(parameter.grad is None for net in nets for parameter in net.parameters())


def test_once_boundaries_are_said_new_classes_reset_nothing() -> None:
    learner = small_learner("scr+ssd", boundary_gap=4)
    feed(learner, toy_stream(tasks=1, batches=6))
    learner.boundary()
    learner.observe(toy_images([2, 2], 7), [2, 2])
    assert learner.summarizer.age == 1
    for number in range(6):
        learner.observe(toy_images([2, 2], 10 + number), [2, 2])
    learner.observe(toy_images([2, 3], 17), [2, 3])
    assert learner.summarizer.age == 8
    assert learner.summarizer.queue.classes == [2, 3]


def test_a_path_in_the_home_folder_is_taken_as_such_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    learner = small_learner("er")
    learner.observe(GOOD, [0, 1])
    learner.save("~/mine")
    learner.save("~/small", inference_only=True)
    learner.export_memory().write("~/memory")
    config = RunConfig("er", dataset="digits", tasks=1, images_per_class=4, settings={"net": {"width": 8}})
    run(config, "~/run")
    assert Learner.load("~/mine").iteration == 1
    assert len(Predictor.load("~/small").labels) == 2
    assert len(ExportedMemory.read("~/memory").images) == learner.memory.size
    assert Learner.load("~/run").iteration == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]
