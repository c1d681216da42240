"""Answers from an image and its mirror image together."""

import pytest
import torch

from tests.helpers import feed, small_learner, toy_images, toy_stream

X = torch.tensor(toy_images([0, 1, 2, 3], 5)) / 255


@pytest.mark.parametrize("method", ["er", "scr"])
def test_an_image_and_its_mirror_image_get_the_same_scores(method: str) -> None:
    plain = feed(small_learner(method), toy_stream(2, 6))
    mirrored = feed(small_learner(method, classifier={"mirror": True}), toy_stream(2, 6))
    assert not torch.allclose(plain.scores(X), plain.scores(X.flip(-1)), atol=1e-3)
    torch.testing.assert_close(mirrored.scores(X), mirrored.scores(X.flip(-1)))


def test_logits_are_the_mean_of_both() -> None:
    """Because the head is linear. Training is the same with and without."""
    plain = feed(small_learner("er"), toy_stream(2, 6))
    mirrored = feed(small_learner("er", classifier={"mirror": True}), toy_stream(2, 6))
    expected = (plain.scores(X) + plain.scores(X.flip(-1))) / 2
    torch.testing.assert_close(mirrored.scores(X), expected)


def test_class_means_are_those_of_mirrored_images_too() -> None:
    learner = feed(small_learner("scr", classifier={"mirror": True}), toy_stream(2, 6))
    memory, model = learner.memory, learner.model
    model.net.eval()
    with torch.no_grad():
        held = memory.read(memory.filled())
        both = (model.features(held.x) + model.features(held.x.flip(-1))) / 2
        units = both / both.norm(dim=1, keepdim=True)
        means = torch.stack([units[held.y == label].mean(0) for label in range(4)])
    found = learner.classifier.class_means(learner._context())
    torch.testing.assert_close(found, means / means.norm(dim=1, keepdim=True))
