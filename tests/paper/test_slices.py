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


def test_distilled_images_match_the_gradients_better_than_those_they_began_as() -> None:
    """Under nets of other initialisations than the one that distilled."""
    real = [torch.as_tensor(toy_images([label] * 40, label)) for label in (0, 1)]
    config = SliceConfig("toy", 2, 1, images_per_class=1, steps=60, width=16, real_images=16)
    began = distil(real, SliceConfig("toy", 2, 1, 1, steps=0, width=16), Randomness(0))
    ended = distil(real, config, Randomness(0))
    assert not torch.equal(began, ended)
    distances = []
    for images in (began, ended):
        total = 0.0
        for seed in range(3):
            rng = Randomness(100 + seed)
            theta = materialise(lambda: ConvNet(1, 16, width=16), rng["theta"], CPU)
            theta.grow(2, rng["theta"])
            for label, own in enumerate(real):
                target = matching_target(theta, own.float() / 255, label)
                total += float(summarizing_loss(theta, images[label : label + 1], label, target, None, 0.0)[0])
        distances.append(total)
    assert distances[1] < distances[0]


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
