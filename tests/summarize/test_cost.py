"""What a round costs, in counts that no machine's mood changes: a guard against doing work twice."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from engram.base.batch import Batch
from engram.learner import Learner
from engram.summarize import MATCHING, gradient_target, gradient_terms
from tests.helpers import toy_images

CHANNELS, SIZE, WIDTH, QUEUE, SLOTS, CLASSES = 1, 16, 8, 24, 2, 3


def learner_before_a_round() -> Learner:
    """Past classes to anchor to, slots claimed, queues full; only the round itself is left to do."""
    learner = Learner(
        "scr+ssd",
        memory_size=20,
        slots_per_class=SLOTS,
        boundary_gap=1,
        net={"width": 8},
        theta={"width": WIDTH},
        summarize={"queue": QUEUE, "interval": 1000},
    )
    for first in (0, CLASSES):
        labels = [first + index % CLASSES for index in range(CLASSES * SLOTS)]
        learner.observe(toy_images(labels, first), labels)
    current = torch.arange(CLASSES * QUEUE) % CLASSES + CLASSES
    learner.summarizer.queue.push(Batch(torch.rand(len(current), CHANNELS, SIZE, SIZE), current))
    return learner


def forward_flops() -> list[int]:
    """Of one image, by convolution; each block halves the side."""
    sides, inputs = [SIZE, SIZE // 2, SIZE // 4], [CHANNELS, WIDTH, WIDTH]
    return [2 * 9 * channels * WIDTH * side**2 for side, channels in zip(sides, inputs, strict=True)]


def flops_of(work, operators: str = "convolution") -> int:
    with FlopCounterMode(display=False) as counter:
        work()
    counts = counter.get_flop_counts()["Global"]
    return sum(count for operator, count in counts.items() if operators in str(operator))


def test_the_real_gradient_costs_a_forward_and_the_gradients_that_enter_the_loss() -> None:
    """No gradient of the real images themselves: the first convolution has one of its weights only."""
    theta = learner_before_a_round().summarizer.theta
    images = torch.rand(QUEUE, CHANNELS, SIZE, SIZE)
    first, *others = forward_flops()
    assert flops_of(lambda: gradient_target(theta, images, 0)) == QUEUE * (2 * first + 3 * sum(others))


def test_matching_features_costs_a_forward_of_the_real_and_a_gradient_of_the_synthetic_images() -> None:
    """θ's weights get no gradient, and nothing is differentiated twice."""
    theta = learner_before_a_round().summarizer.theta
    matching = MATCHING["features"]()
    first, *others = forward_flops()
    forward = first + sum(others)
    real = torch.rand(QUEUE, CHANNELS, SIZE, SIZE)
    assert flops_of(lambda: matching.target(theta, real, 0)) == QUEUE * forward
    target, images = matching.target(theta, real, 0), torch.rand(SLOTS, CHANNELS, SIZE, SIZE, requires_grad=True)
    images = images * 1  # the counter needs no leaf here

    def gradient() -> None:
        terms = matching.terms(theta, images, 0, target, None, 1.0)
        torch.autograd.grad(terms["feature_matching"], images)

    assert flops_of(gradient) == SLOTS * 2 * forward


def test_the_synthetic_side_costs_at_most_eight_forwards() -> None:
    theta = learner_before_a_round().summarizer.theta
    target = gradient_target(theta, torch.rand(QUEUE, CHANNELS, SIZE, SIZE), 0)
    images = torch.rand(SLOTS, CHANNELS, SIZE, SIZE, requires_grad=True) * 1  # the counter needs no leaf here

    def gradient() -> None:
        matching, relation = gradient_terms(theta, images, 0, target, None, 1.0)
        torch.autograd.grad(matching + relation, images)

    assert flops_of(gradient) <= 8 * SLOTS * sum(forward_flops())


def test_images_through_theta_in_a_round() -> None:
    """A class visit takes each queued image, each of its summaries and each anchor new to the round through θ once."""
    learner = learner_before_a_round()
    theta = learner.summarizer.theta
    images: list[int] = []
    theta.convolutions[0].register_forward_pre_hook(lambda _, inputs: images.append(len(inputs[0])))
    learner.summarizer._round([3, 4, 5], learner._context())
    past = int((learner.memory.claimed & (learner.memory.labels < CLASSES)).sum())
    assert past == CLASSES * SLOTS
    assert sum(images) == CLASSES * (QUEUE + SLOTS) + past


def test_a_scr_step_is_two_forward_and_backward_passes() -> None:
    """Three times the forward of both views, less the input gradients of the first layer."""
    learner = Learner("scr", memory_size=20, net={"width": 8}, scheme={"replay": 20})
    labels = [index % 4 for index in range(20)]
    learner.observe(toy_images(labels, 0), labels)
    x = toy_images([0, 1, 2, 3], 1)
    step = flops_of(lambda: learner.observe(x, [0, 1, 2, 3]))
    views = torch.rand(48, CHANNELS, SIZE, SIZE)
    with learner.model.evaluating():
        forward = flops_of(lambda: learner.model.features(views))
    stem = 48 * 2 * 9 * CHANNELS * 8 * SIZE**2
    assert step == 3 * forward - stem
