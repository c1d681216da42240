"""Distilling by gradient matching, in one group and in several."""

from pathlib import Path

import pytest
import torch

from engram.core import Randomness
from engram.experiment.run import Interrupted
from engram.initialise import materialise
from engram.nets import ConvNet
from engram.paper.slices import CPU, SliceConfig, SliceJob, distil
from engram.summarize import matching_target, summarizing_loss
from tests.helpers import toy_images

CONFIG = SliceConfig("digits", classes=4, groups=2, images_per_class=1, steps=2, width=4, training_steps=3)


def test_distilling_descends_the_distance_between_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen by θ as it begins; without augmentation, and with all real images at every step."""
    monkeypatch.setattr("engram.paper.slices._augmented", lambda images, rng: images)
    real = [torch.as_tensor(toy_images([label] * 40, label)) for label in (0, 1)]
    rng = Randomness(0)
    theta = materialise(lambda: ConvNet(1, 16, width=16), rng["theta"], CPU)
    theta.grow(2, rng["theta"])
    targets = [matching_target(theta, own.float() / 255, label) for label, own in enumerate(real)]
    distances = []
    for steps in (0, 3, 10):
        config = SliceConfig("toy", 2, 1, images_per_class=1, steps=steps, width=16, real_images=40)
        images = distil(real, config, Randomness(0))
        losses = [
            summarizing_loss(theta, images[label : label + 1], label, target, None, 0.0)[0].detach()
            for label, target in enumerate(targets)
        ]
        distances.append(float(sum(losses)))
    assert distances[0] > distances[1] > distances[2]


def test_a_finished_or_interrupted_job_goes_on(tmp_path: Path) -> None:
    whole = SliceJob(CONFIG, tmp_path / "whole").run(lambda: False)
    looks = 0

    def in_the_second_group() -> bool:
        nonlocal looks
        looks += 1
        return looks > 2

    with pytest.raises(Interrupted):
        SliceJob(CONFIG, tmp_path / "broken").run(in_the_second_group)
    again = SliceJob(CONFIG, tmp_path / "broken").run(lambda: False)
    assert again["average_end_accuracy"] == whole["average_end_accuracy"]
    written = (tmp_path / "broken" / "result.json").stat().st_mtime_ns
    assert SliceJob(CONFIG, tmp_path / "broken").run(lambda: False) == again
    assert (tmp_path / "broken" / "result.json").stat().st_mtime_ns == written
