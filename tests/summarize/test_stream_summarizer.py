"""When rounds happen, what they change, and what θ learns from."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engram import InputError, SummaryMemory
from engram.base.context import MemoryContext
from engram.streams import class_incremental, load_dataset
from engram.summarize import (
    StreamSummarizer,
    augment_differentiably,
    draw_augmentation,
    gradient_target,
    gradient_terms,
)
from engram.summarize.image_optimizer import drift, image_learning_rate
from engram.summarize.stream_summarizer import PastSummaries
from tests.helpers import feed, small_learner, toy_images, toy_stream


def balanced_task(first: int, batches: int, classes: int = 10) -> list[tuple[np.ndarray, list[int]]]:
    labels = list(range(first, first + classes))
    return [(toy_images(labels, seed=index), labels) for index in range(batches)]


def without_training(learner, monkeypatch: pytest.MonkeyPatch):
    """Rounds are counted, nothing is computed."""
    monkeypatch.setattr(learner, "_train", lambda stream: None)
    monkeypatch.setattr(StreamSummarizer, "_train_theta", lambda self, stream, ctx: None)
    monkeypatch.setattr(
        StreamSummarizer,
        "_gradient",
        lambda self, images, label, past, ctx: (torch.zeros_like(images), {"gradient_matching": 0.0}),
    )
    return learner


def classes_visited(learner, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Fills as rounds visit classes; nothing is computed."""
    visited: list[int] = []
    without_training(learner, monkeypatch)

    def visit(
        self: StreamSummarizer, images: Tensor, label: int, past: Tensor, ctx: MemoryContext
    ) -> tuple[Tensor, dict]:
        visited.append(label)
        return torch.zeros_like(images), {"gradient_matching": 0.0}

    monkeypatch.setattr(StreamSummarizer, "_gradient", visit)
    return visited


@pytest.mark.parametrize("slots", [1, 10, 64])
def test_73_rounds_in_a_task_of_500_balanced_batches(slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = small_learner(memory_size=1300, slots_per_class=slots, summarize={"ready": None})
    without_training(learner, monkeypatch)
    rounds_at = []
    for task in range(2):
        for index, (x, y) in enumerate(balanced_task(10 * task, 500)):
            before = learner.rounds
            learner.observe(x, y)
            if learner.rounds > before:
                rounds_at.append((task, index))
    assert rounds_at == [(task, index) for task in range(2) for index in range(66, 499, 6)]
    assert learner.rounds == 2 * 73


def test_wait_full_holds_rounds_until_the_memory_has_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = small_learner(memory_size=30, slots_per_class=1, summarize={"queue": 4, "interval": 1, "wait_full": True})
    without_training(learner, monkeypatch)
    counts = []
    for x, y in balanced_task(0, 8, classes=5):
        learner.observe(x, y)
        counts.append((learner.memory.free, learner.rounds))
    assert [rounds for free, rounds in counts if free] == [0] * 5
    assert learner.rounds == 3


def test_a_rare_class_does_not_block_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = small_learner(memory_size=8, slots_per_class=2, summarize={"queue": 8, "ready": 4, "interval": 1})
    visited = classes_visited(learner, monkeypatch)
    for index in range(6):
        labels = [0, 0, 1, 1] if index else [0, 1, 2, 2]
        learner.observe(toy_images(labels, index), labels)
    assert set(visited) == {0, 1}


def test_round_equals_one_shared_optimizer_stepped_once_per_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """The published way, written out: SGD over the images of all classes, zero gradient for all but the visited."""
    classes, slots, rate, momentum = 5, 2, 4e-2, 0.9

    def gradient(images: Tensor, label: int) -> Tensor:
        return (label + 1) * (images - 0.3) ** 2 + 0.1 * label

    learner = small_learner(memory_size=16, slots_per_class=slots, summarize={"learning_rate": rate})
    without_training(learner, monkeypatch)
    monkeypatch.setattr(
        StreamSummarizer,
        "_gradient",
        lambda self, images, label, past, ctx: (gradient(images, label), {"gradient_matching": 0.0}),
    )
    for x, y in balanced_task(0, 3, classes):
        learner.observe(x, y)
    memory, summarizer = learner.memory, learner.summarizer
    slots_of = {label: memory.claimed_by(label) for label in range(classes)}
    assert all(len(owned) == slots for owned in slots_of.values())

    obvious = {label: memory.read(owned).x.clone().requires_grad_() for label, owned in slots_of.items()}
    optimizer = torch.optim.SGD(list(obvious.values()), lr=rate, momentum=momentum)
    for _ in range(3):
        written = {}
        for label in range(classes):
            for images in obvious.values():
                images.grad = torch.zeros_like(images)
            obvious[label].grad = gradient(obvious[label].detach(), label)
            optimizer.step()
            written[label] = obvious[label].detach().clone()
        summarizer._round(list(range(classes)), learner._context())
        for label, owned in slots_of.items():
            torch.testing.assert_close(memory.read(owned).x, written[label], rtol=1e-5, atol=1e-6)
            copies = torch.stack([summarizer.working[slot]["image"] for slot in owned.tolist()])
            torch.testing.assert_close(copies, obvious[label].detach(), rtol=1e-5, atol=1e-6)


@given(st.integers(0, 12), st.floats(0, 0.99), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_drift_equals_so_many_steps_without_gradient(steps: int, momentum: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    image, velocity = torch.rand(2, 3, 4, generator=generator, dtype=torch.float64), None
    velocity = torch.rand(2, 3, 4, generator=generator, dtype=torch.float64)
    slow_image, slow_velocity = image.clone(), velocity.clone()
    for _ in range(steps):
        slow_velocity = momentum * slow_velocity
        slow_image = slow_image - 0.1 * slow_velocity
    drift(image, velocity, steps, 0.1, momentum)
    torch.testing.assert_close(image, slow_image)
    torch.testing.assert_close(velocity, slow_velocity)


@pytest.mark.parametrize(
    ("slots", "rate"), [(1, 2e-4), (5, 1e-3), (10, 4e-3), (50, 4e-3), (2, 2e-4 * 5 ** (np.log(2) / np.log(5)))]
)
def test_image_learning_rate_is_published_or_log_interpolated(slots: int, rate: float) -> None:
    assert image_learning_rate(slots) == pytest.approx(rate)


def test_theta_never_learns_from_a_summary_and_sees_stream_and_originals(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = small_learner(memory_size=12, slots_per_class=1)
    seen: list[Tensor] = []
    plain = StreamSummarizer._train_theta

    def watched(self: StreamSummarizer, stream, ctx: MemoryContext) -> None:
        self.theta.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].clone())).__enter__()
        plain(self, stream, ctx)
        self.theta._forward_pre_hooks.clear()

    monkeypatch.setattr(StreamSummarizer, "_train_theta", watched)
    arrived: set[bytes] = set()
    for x, y in toy_stream(tasks=3, batches=14):
        arrived |= {image.tobytes() for image in (x.astype(np.float32) / 255)}
        learner.observe(x, y)
    assert learner.rounds > 3
    assert learner.memory.summary.any()
    trained_on = {image.numpy().tobytes() for batch in seen for image in batch}
    assert trained_on <= arrived
    assert max(len(batch) for batch in seen) <= 10
    assert sum(len(batch) for batch in seen) > 3 * 14 * 4


@pytest.mark.parametrize("seed", range(4))
def test_claimed_slots_change_in_rounds_only(seed: int) -> None:
    """Over a random stream: bytes of a claimed slot differ only where a round rewrote it, and it says so."""
    labels = np.random.default_rng(seed)
    learner = small_learner(memory_size=10, slots_per_class=2, seed=seed)
    before: dict[int, bytes] = {}
    rewritten = 0
    visited: set[int] = set()
    learner.observe(toy_images([0], 99), [0])
    memory = learner.memory
    rewrite = memory.rewrite
    memory.rewrite = lambda slots, images: visited.update(slots.tolist()) or rewrite(slots, images)
    for index in range(40):
        batch = labels.integers(0, 2 + index // 10, size=4).tolist()
        rounds = learner.rounds
        visited.clear()
        learner.observe(toy_images(batch, index), batch)
        now = {slot: memory.records[slot].numpy().tobytes() for slot in memory.claimed.nonzero().flatten().tolist()}
        changed = {slot for slot, record in before.items() if now[slot] != record}
        assert changed <= visited
        assert not changed or learner.rounds == rounds + 1
        assert all(memory.summary[slot] for slot in changed)
        rewritten += len(changed)
        before = now
    assert rewritten > 10


def test_new_classes_reset_theta_and_the_queue_as_published() -> None:
    learner = feed(small_learner(boundary_gap=5), toy_stream(tasks=1, batches=10))
    before = learner.summarizer.theta.convolutions[0].weight.detach().clone()
    learner.observe(toy_images([7, 8], 0), [7, 8])
    assert learner.summarizer.queue.classes == [2, 3]
    assert learner.summarizer.age == 1
    assert not torch.equal(learner.summarizer.theta.convolutions[0].weight, before)
    assert learner.summarizer.theta.head.outputs == 4


def test_a_reset_forgets_the_momentum_of_theta() -> None:
    learner = feed(small_learner(boundary_gap=5), toy_stream(tasks=1, batches=10))
    assert learner.summarizer.theta_optimizer.state
    learner._add_classes([7, 8])
    assert not learner.summarizer.theta_optimizer.state


def test_real_and_synthetic_images_are_augmented_each_by_its_own_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    from engram.summarize import stream_summarizer
    from engram.summarize.matching import gradients

    learner = feed(small_learner(memory_size=4, slots_per_class=2), toy_stream(tasks=1, batches=8))
    drawn, matched, summarized = [], [], []
    draw, target, loss = stream_summarizer.draw_augmentation, gradients.gradient_target, gradients.gradient_terms
    monkeypatch.setattr(stream_summarizer, "draw_augmentation", lambda *a: drawn.append(draw(*a)) or drawn[-1])
    monkeypatch.setattr(gradients, "gradient_target", lambda *a: matched.append(a[1]) or target(*a))
    monkeypatch.setattr(gradients, "gradient_terms", lambda *a: summarized.append(a[1]) or loss(*a))
    summarizer, ctx = learner.summarizer, learner._context()
    images = torch.stack([summarizer.working[identity]["image"] for identity in sorted(summarizer.working)[:2]])
    real = summarizer.queue.read(0)
    past = stream_summarizer.PastSummaries(torch.zeros(0, dtype=torch.long), summarizer.theta, ctx)
    summarizer._gradient(images, 0, past, ctx)
    assert len(drawn) == 2
    assert torch.equal(matched[0], stream_summarizer.augment_differentiably(real, drawn[0]))
    assert torch.equal(summarized[0], stream_summarizer.augment_differentiably(images, drawn[1]))
    assert not torch.equal(drawn[0].brightness[:2], drawn[1].brightness[:2])


@pytest.mark.parametrize("how", ["setting", "same change"])
def test_growing_keeps_theta_and_the_queue(how: str) -> None:
    summarize = {"queue": 8, "ready": 4, "interval": 3} | ({"new_classes": "grow"} if how == "setting" else {})
    learner = small_learner(boundary_gap=5 if how == "setting" else 50, summarize=summarize)
    feed(learner, toy_stream(tasks=1, batches=10))
    summarizer = learner.summarizer
    theta = summarizer.theta
    convolution, head = theta.convolutions[0].weight.detach().clone(), theta.head.weight.detach().clone()
    learner._add_classes([7, 8])
    assert torch.equal(summarizer.theta.convolutions[0].weight, convolution)
    assert torch.equal(summarizer.theta.head.weight[:2], head)
    assert summarizer.queue.classes == [0, 1]
    learner.observe(toy_images([7, 8], 0), [7, 8])
    assert summarizer.queue.classes == [0, 1, 2, 3]
    assert summarizer.age == 11


def test_component_ablation_turns_past_help_off() -> None:
    """D+S of the paper: gradient matching only, θ on the stream only."""
    ablated = {"queue": 8, "ready": 4, "interval": 3, "gamma": 0.0, "theta_past_images": 0}
    learner = small_learner(memory_size=12, slots_per_class=1, boundary_gap=5, summarize=ablated)
    sizes = []
    learner.observe(*next(toy_stream(1, 1)))
    learner.summarizer.theta.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    feed(learner, toy_stream(tasks=2, batches=12))
    assert set(sizes) == {4}
    assert learner.summarizer.last_losses["relationship"] == 0


def test_summaries_match_their_whole_class_better_than_the_first_images_did() -> None:
    """Over all training images of the class, most of which the queue had long dropped, under new augmentations."""
    stream = class_incremental(load_dataset("digits"), seed=0, tasks=1)
    learner = small_learner(
        memory_size=2,
        slots_per_class=1,
        keep_originals=True,
        theta={"width": 32},
        summarize={"queue": 16, "ready": 8, "interval": 1, "learning_rate": 1e-3},
    )
    feed(learner, stream.batches(stream.tasks[0]))
    theta, memory = learner.summarizer.theta, learner.memory
    before, after = 0.0, 0.0
    for label in range(2):
        slot = memory.claimed_by(label)
        pixels = torch.tensor(stream.dataset.train_x[stream.dataset.train_y == learner.labels[label]]) / 255
        for seed in range(5):
            generator = torch.Generator().manual_seed(seed)
            target = gradient_target(
                theta, augment_differentiably(pixels, draw_augmentation(len(pixels), 16, generator)), label
            )
            draw = draw_augmentation(1, 16, generator)
            first, summary = (
                augment_differentiably(memory.read_original(int(slot))[None], draw),
                augment_differentiably(memory.read(slot).x, draw),
            )
            before += float(gradient_terms(theta, first, label, target, None, 0.0)[0].detach())
            after += float(gradient_terms(theta, summary, label, target, None, 0.0)[0].detach())
    assert after < 0.5 * before


@pytest.mark.parametrize(
    "wrong",
    [
        {"queue": 4, "ready": 5},
        {"ready": 0},
        {"interval": 0},
        {"momentum": 1.0},
        {"max_current_classes": 0},
        {"theta_batch": 0},
        {"anchors": -1},
        {"theta_past_images": -1},
        {"new_classes": "forget"},
    ],
)
def test_impossible_settings_are_refused(wrong: dict) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        StreamSummarizer(**wrong)


def test_a_said_boundary_makes_the_next_new_classes_reset_whenever_it_was() -> None:
    learner = feed(small_learner(boundary_gap=50), toy_stream(tasks=1, batches=5))
    learner.boundary()
    learner.observe(toy_images([7, 8], 0), [7, 8])
    assert learner.summarizer.queue.classes == [2, 3]
    assert learner.summarizer.age == 1


def test_anchors_are_summaries_of_past_classes_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most ten, drawn anew at each visit, not augmented, none of a current class; each goes through θ once."""
    learner = small_learner(memory_size=40, slots_per_class=4, boundary_gap=5)
    feed(learner, toy_stream(tasks=4, batches=8))
    drawn: list[list[int]] = []
    found: list[Tensor] = []
    forwarded: list[int] = []
    plain_features, plain_read = PastSummaries.features, learner.memory.read

    def watched(self: PastSummaries, chosen: list[int]) -> Tensor:
        drawn.append([self.memory.slot_of(identity) for identity in chosen])
        handle = self.theta.convolutions[0].register_forward_pre_hook(
            lambda _, inputs: forwarded.append(len(inputs[0]))
        )
        found.append(plain_features(self, chosen))
        handle.remove()
        return found[-1]

    monkeypatch.setattr(PastSummaries, "features", watched)
    learner.summarizer._round([6, 7], learner._context())
    assert [len(slots) for slots in drawn] == [10, 10]
    assert drawn[0] != drawn[1]
    assert sum(forwarded) == len(set(drawn[0]) | set(drawn[1])) < 20
    for slots, features in zip(drawn, found, strict=True):
        assert len(set(slots)) == 10
        assert set(learner.memory.labels[slots].tolist()) <= set(range(6))
        assert learner.memory.claimed[slots].all()
        with torch.no_grad():
            torch.testing.assert_close(features, learner.summarizer.theta.features(plain_read(torch.tensor(slots)).x))


def test_a_class_waits_for_all_its_slots_and_for_a_batch_without_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """k = 6 with a queue of 2: images 1 to 6 claim, so the first round is that of the seventh batch."""
    learner = small_learner(memory_size=12, slots_per_class=6, summarize={"queue": 2, "interval": 1})
    without_training(learner, monkeypatch)
    rounds = []
    for index in range(9):
        learner.observe(toy_images([0, 1], index), [0, 1])
        rounds.append(learner.rounds)
    assert rounds == [0, 0, 0, 0, 0, 0, 1, 2, 3]


def test_a_class_short_of_its_slots_is_not_summarized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Class 1 stops coming with one slot of three: it has its images queued but never takes part."""
    learner = small_learner(memory_size=12, slots_per_class=3, summarize={"queue": 2, "ready": 1, "interval": 1})
    visited = classes_visited(learner, monkeypatch)
    for index in range(6):
        labels = [0, 0] if index else [0, 1]
        learner.observe(toy_images(labels, index), labels)
    assert set(visited) == {0}


def test_steps_of_one_batch_come_in_the_published_order(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = feed(small_learner(summarize={"queue": 4, "interval": 1}), toy_stream(1, 8))
    order: list[str] = []

    def note(owner: object, name: str, as_what: str) -> None:
        plain = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args: order.append(as_what) or plain(*args))

    note(learner, "_train", "train")
    note(learner.summarizer, "push", "push")
    note(learner.policy, "store", "store")
    note(learner.summarizer, "_round", "round")
    note(learner.summarizer, "_train_theta", "theta")
    learner.observe(toy_images([0, 1], 9), [0, 1])
    assert order == ["train", "push", "store", "round", "theta"]


def test_a_round_forwards_each_real_image_once() -> None:
    learner = feed(small_learner(summarize={"queue": 6, "interval": 1, "anchors": 0}), toy_stream(1, 8))
    forwarded: list[int] = []
    learner.summarizer.theta.convolutions[0].register_forward_pre_hook(lambda _, x: forwarded.append(len(x[0])))
    learner.summarizer._round([0, 1], learner._context())
    synthetic = int(learner.memory.claimed.sum())
    assert sum(forwarded) == 2 * 6 + synthetic


def test_fast_takes_fewer_real_images_and_trains_theta_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = small_learner(
        memory_size=8, slots_per_class=2, summarize={"queue": 20, "ready": 14, "interval": 1, "fast": True}
    )
    real_images: list[Tensor] = []
    trained_at: list[int] = []

    def note_target(theta, images: Tensor, label: int):
        real_images.append(images)
        return gradient_target(theta, images, label)

    monkeypatch.setattr("engram.summarize.matching.gradients.gradient_target", note_target)
    monkeypatch.setattr(StreamSummarizer, "_train_theta", lambda self, stream, ctx: trained_at.append(ctx.iteration))
    for x, y in balanced_task(0, 20, classes=2):
        learner.observe(x, y)
    assert {len(images) for images in real_images} == {14, 15, 16}
    assert trained_at == list(range(0, 20, 2))
    repeated = [images for images in real_images if len(images) == 16]
    assert not torch.equal(repeated[0], repeated[-1])


def test_a_visit_moves_no_more_summaries_than_asked_and_in_time_all() -> None:
    settings = {"queue": 6, "interval": 1, "summary_images": 2, "momentum": 0.0}
    learner = feed(small_learner(memory_size=8, slots_per_class=4, summarize=settings), toy_stream(1, 8))
    slots = learner.memory.claimed_by(0)
    assert len(slots) == 4
    moved = torch.zeros(4, dtype=torch.bool)
    for _ in range(12):
        before = learner.memory.read(slots).x
        learner.summarizer._round([0, 1], learner._context())
        changed = (learner.memory.read(slots).x != before).flatten(1).any(1)
        assert changed.sum() == 2
        moved |= changed
    assert moved.all()


def test_those_not_visited_drift_along_their_momentum_and_stay_as_they_are_in_the_store() -> None:
    """Also those of a class that is not visited at all: the optimizer is stepped once for each class that is."""
    settings = {"queue": 6, "interval": 1, "summary_images": 2}
    learner = feed(small_learner(memory_size=12, slots_per_class=4, summarize=settings), toy_stream(1, 8, classes=3))
    summarizer = learner.summarizer
    copies = {identity: {n: t.clone() for n, t in copy.items()} for identity, copy in summarizer.working.items()}
    stored = {int(learner.memory.ids[slot]): learner.memory.read(torch.tensor([slot])).x[0] for slot in range(12)}
    summarizer._round([0, 1], learner._context())
    rate, drifted = image_learning_rate(4), 0
    for identity, copy in copies.items():
        now = learner.memory.read(torch.tensor([learner.memory.slot_of(identity)])).x[0]
        if not torch.equal(now, stored[identity]):
            continue
        image, velocity = copy["image"], copy["velocity"]
        for _ in range(2):
            velocity = 0.9 * velocity
            image = image - rate * velocity
        torch.testing.assert_close(summarizer.working[identity]["image"], image)
        torch.testing.assert_close(summarizer.working[identity]["velocity"], velocity)
        drifted += 1
    assert drifted == 12 - 2 * 2
    assert max(float(copy["velocity"].abs().max()) for copy in copies.values()) > 0


def test_a_class_with_no_more_summaries_than_a_visit_moves_is_summarized_as_ever() -> None:
    settings = {"queue": 6, "interval": 1}
    limited, free = (
        feed(small_learner(memory_size=8, slots_per_class=4, summarize=settings | limit), toy_stream(1, 12))
        for limit in ({"summary_images": 4}, {})
    )
    assert limited.rounds == free.rounds > 0
    assert torch.equal(limited.memory.read(torch.arange(8)).x, free.memory.read(torch.arange(8)).x)


def test_what_fast_stands_for_can_be_set_one_by_one() -> None:
    exact, fast = StreamSummarizer(), StreamSummarizer(fast=True, real_images=4)
    assert (exact.real_images, exact.summary_images, exact.theta_interval) == (None, None, 1)
    assert (fast.real_images, fast.summary_images, fast.theta_interval) == (4, 5, 2)
    for wrong in ({"real_images": 0}, {"summary_images": 0}, {"theta_interval": 0}):
        with pytest.raises(InputError):
            StreamSummarizer(**wrong)


def test_without_a_queue_the_batch_at_hand_is_matched_and_nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = small_learner(memory_size=8, slots_per_class=1, summarize={"queue": 0, "interval": 1})
    real: list[int] = []

    def note_target(theta, images: Tensor, label: int):
        real.append(len(images))
        return gradient_target(theta, images, label)

    monkeypatch.setattr("engram.summarize.matching.gradients.gradient_target", note_target)
    for index in range(4):
        learner.observe(toy_images([0, 1, 1, 1], index), [0, 1, 1, 1])
    assert learner.rounds == 3
    assert real == [1, 3] * 3
    assert learner.footprint()["queue"] == 0
    with pytest.raises(InputError, match="queue"):
        StreamSummarizer(queue=-1)


def test_classes_that_push_each_other_out_of_the_queue_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    mixed = {"queue": 4, "interval": 2, "max_current_classes": 3}
    few, enough = (
        SummaryMemory(memory_size=6, theta={"width": 8}, summarize=mixed | changes)
        for changes in ({}, {"max_current_classes": 5})
    )
    for number in range(12):
        labels = [number % 5, (number + 2) % 5]
        for memory in (few, enough):
            memory.update(toy_images(labels, number), labels)
    told = [record.getMessage() for record in caplog.records]
    assert [message.split(":")[0] for message in told] == [
        "no class stays in the queue until it has the 4 images it is summarized from"
    ]
    assert (few.rounds, enough.rounds > 0) == (0, True)
