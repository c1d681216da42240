"""GDumb: rates against torch's scheduler, mixing pixel by pixel, steps by hand, and what the trained net depends on."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from engram import InputError, Learner, NotReadyError, Predictor, RunConfig
from engram.classifiers.from_scratch import FromScratch, rate_of_epoch
from engram.classifiers.mixing import cut_and_mix, draw_box, shift_and_flip
from engram.memory import Dynamic, Reservoir
from engram.methods import names
from engram.schemes import ExperienceReplay
from engram.testing import small_options
from tests.helpers import feed, fingerprint, toy_images, toy_stream

X = toy_images([0, 1, 2, 3] * 2, 5)


def learner(method: str = "gdumb", **changes: Any) -> Learner:
    options = small_options(method) | changes
    options["classifier"] = {"epochs": 4, "shift": 0, "flip": 0.0} | changes.get("classifier", {})
    return Learner(method, **options)


def test_rates_are_those_of_the_released_code() -> None:
    """Its first epoch has a tenth of the rate, its second all of it; then torch's scheduler is stepped."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=1, T_mult=2, eta_min=0.0005)
    optimizer.step()
    expected = [0.005, 0.05]
    for _ in range(2, 256):
        scheduler.step()
        expected.append(optimizer.param_groups[0]["lr"])
    assert [rate_of_epoch(epoch, 0.05, 0.0005) for epoch in range(256)] == pytest.approx(expected)


def test_each_image_is_moved_and_mirrored_by_itself() -> None:
    images = torch.arange(1.0, 1 + 40 * 2 * 5 * 6).view(40, 2, 5, 6)
    changed = shift_and_flip(images, 2, 0.5, torch.Generator().manual_seed(0))
    found = set()
    for before, after in zip(images, changed, strict=True):
        padded = F.pad(before, (2, 2, 2, 2))
        found |= {
            (top, left, flipped)
            for top in range(5)
            for left in range(5)
            for flipped, image in ((False, after), (True, after.flip(2)))
            if torch.equal(padded[:, top : top + 5, left : left + 6], image)
        }
    assert len(found) > 20
    assert {flipped for *_, flipped in found} == {False, True}
    assert torch.equal(shift_and_flip(images, 0, 0.0, torch.Generator()), images)
    assert torch.equal(shift_and_flip(images, 0, 1.0, torch.Generator()), images.flip(3))


def test_a_box_comes_from_the_partner_and_the_share_is_that_of_its_pixels() -> None:
    images, partners = torch.zeros(3, 2, 6, 8), torch.ones(3, 2, 6, 8)
    mixed, own = cut_and_mix(images, partners, (1, 4, 2, 8))
    for row in range(6):
        for column in range(8):
            assert bool((mixed[:, :, row, column] == float(1 <= row < 4 and 2 <= column < 8)).all())
    assert own == pytest.approx(1 - float(mixed.mean())) == 1 - 18 / 48
    assert not images.any(), "the images given stay as they are"


def test_boxes_lie_inside_and_take_a_uniform_share_before_they_are_cut_off() -> None:
    generator = torch.Generator().manual_seed(0)
    boxes = [draw_box(32, 32, generator) for _ in range(4000)]
    assert all(0 <= top <= bottom <= 32 and 0 <= left <= right <= 32 for top, bottom, left, right in boxes)
    whole = [b for b in boxes if b[0] > 0 and b[1] < 32 and b[2] > 0 and b[3] < 32]
    assert all(bottom - top == right - left for top, bottom, left, right in whole)
    sides = sorted({bottom - top for top, bottom, *_ in whole})
    assert set(sides) >= set(range(0, 28, 2))
    drawn = [
        (int(32 * float(share) ** 0.5) // 2 * 2) ** 2 / 1024
        for share in torch.rand(4000, generator=torch.Generator().manual_seed(1))
    ]
    small = np.mean([(bottom - top) * (right - left) <= 64 for top, bottom, left, right in boxes])
    assert small == pytest.approx(np.mean([share <= 64 / 1024 for share in drawn]), abs=0.06)


def test_one_epoch_is_steps_of_sgd_on_the_memory_from_the_first_weights() -> None:
    mine = feed(learner(classifier={"epochs": 1, "cutmix": 0.0, "batch": 5, "clip": 1e9}), toy_stream(2, 4))
    net, memory = copy.deepcopy(mine.model.net).train(), mine.memory
    found = mine.classifier.answering_model(mine._context()).net
    order = torch.randperm(8, generator=_generator(mine))
    velocity = {name: torch.zeros_like(parameter) for name, parameter in net.named_parameters()}
    for slots in (order[:5], order[5:]):
        batch = memory.read(slots)
        net.zero_grad()
        F.cross_entropy(net(batch.x, "logits")[1], batch.y).backward()
        with torch.no_grad():
            for name, parameter in net.named_parameters():
                assert parameter.grad is not None
                velocity[name] = 0.9 * velocity[name] + parameter.grad + 1e-6 * parameter
                parameter -= 0.005 * velocity[name]
    for (name, expected), parameter in zip(net.named_parameters(), found.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-4, atol=1e-6, msg=name)


def _generator(mine: Learner) -> torch.Generator:
    return type(mine.rng)(mine.rng.seed)["answers"]


def test_a_mixed_batch_has_the_labels_of_both_images_by_their_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = feed(learner(), toy_stream(2, 4))
    monkeypatch.setattr("engram.classifiers.from_scratch.draw_box", lambda *_: (0, 4, 0, 16))
    always = FromScratch(cutmix=1.0, shift=0, flip=0.0)
    batch, model = mine.memory.read(torch.arange(6)), copy.deepcopy(mine.model)
    generator = torch.Generator().manual_seed(3)
    partners = torch.randperm(6, generator=_after_one(generator))
    x = batch.x.clone()
    x[:, :, :4] = batch.x[partners][:, :, :4]
    with torch.no_grad():
        logs = model.logits(x).log_softmax(1)
        expected = -sum(0.75 * logs[i, batch.y[i]] + 0.25 * logs[i, batch.y[partners[i]]] for i in range(6)) / 6
        found = always._loss(batch, copy.deepcopy(mine.model), generator)
    assert float(found) == pytest.approx(float(expected), rel=1e-4)


def _after_one(generator: torch.Generator) -> torch.Generator:
    """A generator that has made the draws that come before the partners."""
    twin = torch.Generator()
    twin.set_state(generator.get_state())
    shift_and_flip(torch.zeros(6, 1, 4, 4), 0, 0.0, twin)
    torch.rand((), generator=twin)
    return twin


def test_the_stream_trains_nothing_and_answers_come_from_the_memory_alone(tmp_path: Path) -> None:
    mine = learner()
    mine.observe(*next(toy_stream(1, 1)))
    first = copy.deepcopy(mine.model.net.backbone.state_dict())
    feed(mine, toy_stream(2, 6))
    assert mine.model.version == 0
    assert all(torch.equal(first[name], tensor) for name, tensor in mine.model.net.backbone.state_dict().items())
    before, scores = fingerprint(mine), mine.scores(X)
    mine.save(tmp_path / "saved")
    assert torch.equal(Learner.load(tmp_path / "saved").scores(X), scores)
    assert fingerprint(mine) == before


def test_the_net_is_trained_anew_only_if_the_memory_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, trained = feed(learner(), toy_stream(2, 6)), []
    whole = FromScratch._trained
    monkeypatch.setattr(FromScratch, "_trained", lambda self, ctx: trained.append(1) or whole(self, ctx))
    scores = mine.scores(X)
    mine.predict(X[:3])
    mine.predictor()
    assert len(trained) == 1
    mine.memory.remove(0)
    assert not torch.equal(mine.scores(X), scores)
    assert len(trained) == 2
    with torch.inference_mode():
        mine.memory.remove(0)
        mine.predict(X)
    assert len(trained) == 3


def test_what_is_saved_for_inference_is_the_trained_net(tmp_path: Path) -> None:
    mine = feed(learner(), toy_stream(2, 6))
    mine.save(tmp_path / "answers", inference_only=True)
    mine.export(tmp_path / "net.pt2")
    torch.testing.assert_close(Predictor.load(tmp_path / "answers").scores(X), mine.scores(X))
    scores, _ = torch.export.load(tmp_path / "net.pt2").module()(torch.from_numpy(X).float() / 255)
    torch.testing.assert_close(scores, mine.scores(X), rtol=1e-3, atol=1e-4)


def test_other_memories_can_be_measured() -> None:
    assert {"gdumb+ssd", "gdumb+dynamic"} <= set(names())
    summarizing = feed(learner("gdumb+ssd"), toy_stream(2, 8))
    assert summarizing.rounds > 0
    assert set(summarizing.predict(X)) <= {0, 1, 2, 3}
    assert isinstance(summarizing.policy, Dynamic)
    assert len(feed(learner(policy=Reservoir()), toy_stream(2, 3)).predict(X)) == 8


def test_an_average_or_a_trained_net_is_refused() -> None:
    for made in (Learner, RunConfig):
        with pytest.raises(InputError, match=r"average is 0.9, but Untrained trains no net"):
            made("gdumb", average=0.9)
    with pytest.raises(InputError, match="FromScratch needs first weights"):
        Learner(scheme=ExperienceReplay(), classifier=FromScratch())


def test_an_empty_memory_cannot_be_learned() -> None:
    mine = learner(memory_size=None, memory_bytes=90, codec="webp(50)")
    noise = np.random.default_rng(0).integers(0, 256, (2, 1, 16, 16)).astype(np.uint8)
    mine.observe(noise, [0, 1])
    assert mine.memory.size == 0
    with pytest.raises(NotReadyError, match="no image to train on"):
        mine.predict(X)
