"""Nearest class mean against one image at a time."""

import torch

from tests.helpers import feed, small_learner, toy_images, toy_stream


def test_scores_equal_the_obvious_ones() -> None:
    learner = feed(small_learner("scr+dynamic", memory_size=12), toy_stream(2, 12))
    memory, model = learner.memory, learner.model
    model.net.eval()
    with torch.no_grad():
        units: dict[int, list[torch.Tensor]] = {}
        for slot in range(memory.size):
            feature = model.features(memory.read(torch.tensor([slot])).x)[0]
            units.setdefault(int(memory.labels[slot]), []).append(feature / feature.norm())
        means = {label: sum(own) / len(own) for label, own in units.items()}
        x = torch.tensor(toy_images([0, 1, 2, 3], 5)) / 255
        expected = torch.stack(
            [torch.stack([f @ means[c] / (f.norm() * means[c].norm()) for c in range(4)]) for f in model.features(x)]
        )
    torch.testing.assert_close(learner.scores(x), expected, atol=1e-5, rtol=1e-4)


def test_a_class_without_an_image_is_never_predicted() -> None:
    learner = feed(small_learner("scr", memory_size=2), toy_stream(3, 10))
    present = set(learner.memory.labels.tolist())
    assert len(present) < 6
    scores = learner.scores(toy_images(list(range(6)) * 4, 5))
    for label in range(6):
        assert (scores[:, label] == -torch.inf).all() == (label not in present)
    assert {learner.labels.index(label) for label in learner.predict(toy_images(list(range(6)), 5))} <= present


def test_means_are_computed_once_and_again_when_anything_changes() -> None:
    learner = feed(small_learner("scr"), toy_stream(1, 4))
    x = toy_images([0], 5)
    first = learner.classifier.class_means(learner._context())
    learner.predict(x)
    assert learner.classifier.class_means(learner._context()) is first
    feed(learner, toy_stream(1, 1))
    assert learner.classifier.class_means(learner._context()) is not first
