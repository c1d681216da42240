"""The memory by itself: what a training loop of anybody's own may rely on."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from engram import InputError, Learner, SummaryMemory
from engram.persistence.checkpoint import CheckpointError
from tests.helpers import SMALL_THETA, fingerprint, small_learner, toy_images, toy_stream


def small_memory(**changes: Any) -> SummaryMemory:
    return SummaryMemory(**SMALL_THETA | {"memory_size": 8} | changes)


def test_it_is_the_memory_of_a_learner_given_the_same_stream() -> None:
    """A learner's net takes no part in what SSD remembers, so the two agree to the bit."""
    memory, learner = small_memory(), small_learner("scr+ssd")
    for x, y in toy_stream(tasks=3, batches=12):
        memory.update(x, y)
        learner.observe(x, y)
    assert memory.rounds == learner.rounds > 0
    for name in ("labels", "claimed", "summary", "ids"):
        assert torch.equal(getattr(memory.memory, name), getattr(learner.memory, name))
    slots = memory.memory.filled()
    assert torch.equal(memory.memory.read(slots).x, learner.memory.read(slots).x)


def test_samples_are_distinct_images_of_the_memory_with_their_labels() -> None:
    memory = small_memory()
    for x, y in toy_stream(tasks=2, batches=10):
        memory.update(x, y)
    x, y = memory.sample(5)
    assert isinstance(y, torch.Tensor)
    assert x.shape == (5, 1, 16, 16)
    assert y.dtype == torch.int64
    held = memory.memory.read(memory.memory.filled())
    where = [next(i for i, image in enumerate(held.x) if torch.equal(image, each)) for each in x]
    assert len(set(where)) == 5
    assert y.tolist() == [memory.labels[int(held.y[i])] for i in where]
    assert len(memory.sample(100)[0]) == len(memory) == 8


def test_labels_come_back_as_they_were_given() -> None:
    memory = small_memory()
    memory.update(toy_images([0, 1], 0), ["cat", "dog"])
    assert set(memory.sample(8)[1]) == {"cat", "dog"}
    numbered = small_memory()
    numbered.update(toy_images([0, 1], 0), torch.tensor([700, -3]))
    assert set(numbered.sample(8)[1].tolist()) == {700, -3}  # type: ignore[union-attr]


def test_labels_that_no_tensor_holds_come_back_as_a_list() -> None:
    memory = SummaryMemory(memory_size=2, theta={"width": 8})
    memory.update(toy_images([0, 1], 0), [1 << 63, 5])
    assert sorted(memory.sample(2)[1]) == [5, 1 << 63]


def test_an_empty_memory_joins_a_batch_as_nothing() -> None:
    x, y = torch.rand(4, 1, 16, 16), torch.tensor([0, 1, 0, 1])
    replay_x, replay_y = small_memory().sample(10)
    assert torch.equal(torch.cat([x, replay_x]), x)
    assert torch.equal(torch.cat([y, replay_y]), y)  # type: ignore[list-item]


def test_a_bad_batch_or_count_is_refused_and_changes_nothing() -> None:
    memory = small_memory()
    memory.update(toy_images([0, 1], 0), [0, 1])
    before = fingerprint(memory)
    with pytest.raises(InputError, match="labels"):
        memory.update(toy_images([0, 1], 0), [0])
    with pytest.raises(InputError, match="count"):
        memory.sample(-1)
    assert fingerprint(memory) == before


def test_it_goes_on_exactly_after_a_save(tmp_path: Path) -> None:
    batches = list(toy_stream(tasks=2, batches=12))
    whole, stopped = small_memory(), small_memory()
    for x, y in batches:
        whole.update(x, y)
        whole.sample(3)
    for x, y in batches[:13]:
        stopped.update(x, y)
        stopped.sample(3)
    stopped.save(tmp_path / "m", extra={"step": 13})
    loaded, extra = SummaryMemory.load_with_extra(tmp_path / "m")
    assert extra == {"step": 13}
    for x, y in batches[13:]:
        loaded.update(x, y)
        loaded.sample(3)
    assert fingerprint(loaded) == fingerprint(whole)


def test_a_memory_is_not_loaded_as_a_learner_nor_the_other_way(tmp_path: Path) -> None:
    memory, learner = small_memory(), small_learner("er")
    memory.save(tmp_path / "memory")
    learner.save(tmp_path / "learner")
    with pytest.raises(CheckpointError, match="does not hold a learner"):
        Learner.load(tmp_path / "memory")
    with pytest.raises(CheckpointError, match="does not hold a memory"):
        SummaryMemory.load(tmp_path / "learner")


def test_bytes_are_counted_and_no_net_is_among_them() -> None:
    memory = small_memory(memory_size=None, memory_bytes=1000, codec="webp(50)")
    for x, y in toy_stream(tasks=2, batches=10):
        memory.update(x, y)
        assert memory.footprint()["images"] <= 1000
    counted = memory.footprint()
    assert counted["net"] == 0
    assert counted["theta"] > 0
    assert counted["queue"] > 0
    assert counted["total"] == sum(size for name, size in counted.items() if name != "total")


def test_it_trains_a_model_of_somebody_elses() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    memory = small_memory()
    for images, labels in toy_stream(tasks=2, batches=25):
        x, y = torch.as_tensor(images) / 255, torch.tensor(labels)
        replay_x, replay_y = memory.sample(8)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(torch.cat([x, replay_x])), torch.cat([y, replay_y])).backward()  # type: ignore[list-item]
        optimizer.step()
        memory.update(x, y)
    first_task = torch.as_tensor(toy_images([0, 1] * 20, 99)) / 255
    assert (net(first_task).argmax(1) == torch.tensor([0, 1] * 20)).float().mean() > 0.9


def test_it_says_what_it_is() -> None:
    memory = small_memory()
    memory.update(toy_images([0, 1], 0), [0, 1])
    assert repr(memory) == "SummaryMemory(K=8: 1 batches, 2 classes seen, 2 images, on cpu)"
