"""Distilling by gradient matching, in one group and in several."""

import math
from pathlib import Path

import pytest
import torch

from engram.base.initialization import materialize
from engram.base.rng import Randomness
from engram.experiment.run import Interrupted
from engram.nets import ConvNet
from engram.paper.slices import CPU, Distiller, SliceConfig, SliceJob
from engram.persistence.checkpoint import read_checkpoint
from engram.summarize import gradient_target, gradient_terms
from tests.helpers import toy_images

CONFIG = SliceConfig("digits", classes=4, groups=2, images_per_class=1, steps=2, width=4, training_steps=3)


def test_distilling_descends_the_distance_between_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen by θ as it begins; without augmentation, and with all real images at every step."""
    monkeypatch.setattr("engram.paper.slices._augmented", lambda images, rng: images)
    real = [torch.as_tensor(toy_images([label] * 40, label)) for label in (0, 1)]
    rng = Randomness(0)
    theta = materialize(lambda: ConvNet(1, 16, width=16), rng["theta"], CPU)
    theta.grow(2, rng["theta"])
    targets = [gradient_target(theta, own.float() / 255, label) for label, own in enumerate(real)]
    distances = []
    config = SliceConfig("toy", 2, 1, images_per_class=1, steps=10, width=16, real_images=40)
    distiller = Distiller(real, config, Randomness(0))
    for steps in (0, 3, 10):
        while distiller.done < steps:
            distiller.step()
        images = distiller.distilled
        losses = [
            gradient_terms(theta, images[label : label + 1], label, target, None, 0.0)[0].detach()
            for label, target in enumerate(targets)
        ]
        distances.append(float(sum(losses)))
    assert distances[0] > distances[1] > distances[2]


class StopAfter:
    """So many looks at whether to stop; it counts them."""

    def __init__(self, steps: float) -> None:
        self.steps, self.looks = steps, 0

    def __call__(self) -> bool:
        self.looks += 1
        return self.looks > self.steps


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_an_interrupted_job_goes_on_where_it_stopped(steps: int, tmp_path: Path) -> None:
    whole, broken = SliceJob(CONFIG, tmp_path / "whole"), SliceJob(CONFIG, tmp_path / "broken")
    measured = whole.run(lambda: False)
    with pytest.raises(Interrupted):
        broken.run(StopAfter(steps))
    saved = read_checkpoint(broken.out / "checkpoint")
    assert CONFIG.steps * len(saved["groups"]) + saved["group"]["done"] == steps
    rest = StopAfter(math.inf)
    assert broken.run(rest).average_end_accuracy == measured.average_end_accuracy
    assert rest.looks == CONFIG.steps * CONFIG.groups - steps + CONFIG.training_steps
    ended = [read_checkpoint(job.out / "checkpoint")["groups"] for job in (whole, broken)]
    assert all(torch.equal(a, b) for a, b in zip(*ended, strict=True))


def test_a_finished_job_is_not_run_again(tmp_path: Path) -> None:
    job = SliceJob(CONFIG, tmp_path)
    measured = job.run(lambda: False)
    written = (tmp_path / "result.json").stat().st_mtime_ns
    assert job.run(lambda: True) == measured
    assert (tmp_path / "result.json").stat().st_mtime_ns == written
