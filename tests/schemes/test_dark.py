"""DER++: the loss against a loop over logits, whole steps by hand, and which logits are stored."""

import copy
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from engram import Learner
from engram.base.batch import Batch
from engram.schemes import stored_logits_loss
from tests.helpers import feed, toy_images, toy_stream


def learner(**changes: Any) -> Learner:
    options = {"memory_size": 8, "net": {"width": 8}, "scheme": {"replay": 5, "learning_rate": 0.05}}
    return Learner("der++", **options | changes)


def test_only_logits_that_were_stored_are_compared() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    stored = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    stored[1, 1:] = stored[2] = torch.nan
    found = stored_logits_loss(logits, stored)
    places = [(0, 0), (0, 1), (0, 2), (1, 0), (3, 0), (3, 1), (3, 2)]
    differences = [(float(logits[i, c].detach()) - float(stored[i, c])) ** 2 for i, c in places]
    assert float(found.detach()) == pytest.approx(sum(differences) / 7)
    (gradient,) = torch.autograd.grad(found, logits)
    assert gradient.isfinite().all()
    assert (gradient != 0).sum() == 7


@pytest.mark.parametrize("width", [0, 3])
def test_nothing_is_compared_where_nothing_is_stored(width: int) -> None:
    assert stored_logits_loss(torch.randn(4, 5), torch.full((4, width), torch.nan)) == 0


def test_a_step_is_that_of_the_formula() -> None:
    mine = feed(learner(), toy_stream(2, 4))
    net, memory = copy.deepcopy(mine.model.net).train(), mine.memory
    generator = copy.deepcopy(mine.rng)["replay"]
    first, second = (memory.read(torch.randperm(8, generator=generator)[:5]) for _ in range(2))
    x, y = torch.tensor(toy_images([2, 3, 2], 50)) / 255, torch.tensor([2, 3, 2])
    assert first.logits is not None
    widths = (~first.logits.isnan()).sum(1).tolist()
    assert set(widths) == {2, 4}, "some images are older than the last two classes"
    own = net(x, "logits")[1]
    compared = net(first.x, "logits")[1]
    squares = [(compared[i, c] - first.logits[i, c]) ** 2 for i, width in enumerate(widths) for c in range(width)]
    loss = F.cross_entropy(own, y) + 0.3 * torch.stack(squares).mean()
    loss = loss + 0.5 * F.cross_entropy(net(second.x, "logits")[1], second.y)
    loss.backward()
    mine.observe(toy_images([2, 3, 2], 50), [2, 3, 2])
    for (name, before), after in zip(net.named_parameters(), mine.model.net.parameters(), strict=True):
        assert before.grad is not None
        expected = before.detach() - 0.05 * before.grad
        torch.testing.assert_close(after.detach(), expected, rtol=1e-4, atol=1e-5, msg=name)


def test_an_image_is_stored_with_its_logits_from_before_its_step() -> None:
    mine = learner(memory_size=30)
    mine.observe(toy_images([0, 1, 0], 5), [0, 1, 0])
    net = copy.deepcopy(mine.model.net).train()
    images = toy_images([1, 2, 0], 6)
    mine.observe(images, [1, 2, 0])
    read = mine.memory.read(torch.tensor([3, 4, 5]))
    assert read.logits is not None
    assert torch.equal(read.x, torch.tensor(images) / 255)
    torch.testing.assert_close(read.logits[:, :2], net(read.x, "logits")[1].detach(), atol=0.02, rtol=0)
    assert mine.memory.read(torch.tensor([0])).logits.shape == (1, 2)  # type: ignore[union-attr]


def test_stored_logits_are_those_of_the_augmented_image_and_the_image_is_as_it_came() -> None:
    from engram.augmentations import RandomView

    mine = learner(augment=RandomView(), memory_size=30)
    seen: list[Batch] = []
    whole = mine.scheme.loss
    mine.scheme.loss = lambda stream, replay, ctx: seen.append(stream) or whole(stream, replay, ctx)  # type: ignore
    mine.observe(toy_images([0, 1, 0], 5), [0, 1, 0])
    net = copy.deepcopy(mine.model.net).train()
    images = torch.tensor(toy_images([1, 1, 0], 6))
    mine.observe(images, [1, 1, 0])
    read = mine.memory.read(torch.tensor([3, 4, 5]))
    assert torch.equal(read.x, images / 255)
    assert not torch.equal(seen[1].x, read.x)
    torch.testing.assert_close(read.logits, net(seen[1].x, "logits")[1].detach(), atol=0.02, rtol=0)


def test_announced_classes_have_logits_from_the_start() -> None:
    mine = feed(learner(classes_total=6), toy_stream(1, 3))
    read = mine.memory.read(mine.memory.filled())
    assert read.logits is not None
    assert read.logits.shape == (8, 6)
    assert read.logits.isfinite().all()


def test_both_draws_have_the_same_size_and_are_drawn_apart() -> None:
    mine = feed(learner(), toy_stream(1, 4))
    sizes: list[int] = []
    drawn: list[list[int]] = []
    mine.model.net.backbone.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    select = mine.retrieval.select
    mine.retrieval.select = lambda *rest: drawn.append(select(*rest).tolist()) or torch.tensor(drawn[-1])  # type: ignore
    mine.observe(toy_images([0, 1], 9), [0, 1])
    assert sizes == [2, 5, 5]
    assert [len(slots) for slots in drawn] == [5, 5]
    assert drawn[0] != drawn[1]
