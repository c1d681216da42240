"""Nothing that is not finite is saved or restored, and resuming takes the last sound generation."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engram import Learner, NonFiniteStateError, SummaryMemory
from engram.base.part import Part
from engram.persistence.checkpoint import CheckpointError
from engram.persistence.restore import saved_memory
from engram.stream_consumer import StreamConsumer
from tests.helpers import feed, small_learner, toy_stream


def weights(learner: Learner) -> Tensor:
    return next(learner.model.parameters()).data


def statistics(learner: Learner) -> Tensor:
    return next(buffer for name, buffer in learner.model.net.named_buffers() if name.endswith("running_var"))


def momentum(learner: Learner) -> Tensor:
    return next(iter(learner.summarizer.theta_optimizer.state.values()))["momentum_buffer"]  # type: ignore[union-attr]


def image(learner: Learner) -> Tensor:
    return learner.memory.records[0].view(torch.float32)


def working_copy(learner: Learner) -> Tensor:
    found: Any = learner.summarizer.queue.images  # type: ignore[union-attr]
    label = next(iter(found))
    found[label] = found[label].float()
    return found[label]


PLACES = [weights, statistics, momentum, image, working_copy]


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", PLACES)
def test_a_poisoned_learner_is_not_saved(place: Any, value: float, tmp_path: Path) -> None:
    learner = feed(small_learner("scr+ssd"), toy_stream(1, 8))
    learner.save(tmp_path, extra="sound")
    place(learner).view(-1)[0] = value
    with pytest.raises(NonFiniteStateError, match="not finite"):
        learner.save(tmp_path, extra="poisoned")
    assert Learner.load_with_extra(tmp_path)[1] == "sound"


@pytest.mark.parametrize("place", PLACES)
def test_resuming_takes_the_last_sound_generation(
    place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    learner = feed(small_learner("scr+ssd"), toy_stream(1, 8))
    learner.save(tmp_path, extra="sound")
    place(learner).view(-1)[0] = torch.nan
    with monkeypatch.context() as earlier_version:
        earlier_version.setattr(StreamConsumer, "require_finite", lambda self: None)
        learner.save(tmp_path, extra="poisoned")
    with caplog.at_level(logging.WARNING):
        assert Learner.load_with_extra(tmp_path)[1] == "sound"
    assert "fell back to gen-1" in caplog.text
    assert "not finite" in caplog.text
    if place is image:
        assert torch.isfinite(saved_memory(tmp_path)[0].read(torch.tensor([0])).x).all()


def test_only_poisoned_generations_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SummaryMemory(memory_size=4, theta={"width": 8})
    for x, y in toy_stream(1, 2):
        memory.update(x, y)
    memory.memory.records[0].view(torch.float32)[0] = torch.nan
    monkeypatch.setattr(StreamConsumer, "require_finite", lambda self: None)
    memory.save(tmp_path)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="not finite"):
        SummaryMemory.load(tmp_path)


def test_infinities_that_mean_something_are_saved(tmp_path: Path) -> None:
    """Priorities of claimed images, and masks in a net of the caller's own."""

    class Masked(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Flatten(), nn.Linear(256, 8))
            self.register_buffer("mask", torch.full((8,), -torch.inf))

    learner = Learner("scr+ssd", memory_bytes=4000, codec="webp(50)", net=Masked(), theta={"width": 8})
    feed(learner, toy_stream(1, 6))
    assert learner.memory.priority.isinf().any()
    learner.save(tmp_path)
    assert torch.equal(Learner.load(tmp_path, net=Masked()).memory.priority, learner.memory.priority)


def test_large_finite_values_are_finite() -> None:
    part = Part()
    part.add_state("values", torch.full((10,), 3e38))
    part.require_finite()
    part.values[0] = torch.inf  # type: ignore[attr-defined]
    with pytest.raises(NonFiniteStateError, match=r"Part\.values"):
        part.require_finite()
