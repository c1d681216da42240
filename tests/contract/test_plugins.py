"""What a third party adds without touching this package: each in one small module, used by name everywhere."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TINY = ["--tasks", "2", "--images-per-class", "12", "--net.width", "8", "--memory-size", "6"]

METHOD = '''
from engram.base.settings import Share
from engram.methods import METHODS, Method
from engram.classifiers import Softmax
from engram.memory import Reservoir
from engram.retrieval import RandomRetrieval
from engram.schemes import ExperienceReplay


class Cautious(ExperienceReplay):
    """Experience replay with a smaller loss.

    Args:
        share: share of the loss that is descended.
    """

    def __init__(self, share: Share = 0.5) -> None:
        super().__init__()
        self.share = share

    def loss(self, stream, replay, ctx):
        return self.share * super().loss(stream, replay, ctx)


METHODS["cautious"] = Method(Cautious, RandomRetrieval, Reservoir, Softmax, paper="a third party")
'''
METRIC = '''
from engram.evaluation import METRICS


def worst_task(matrix):
    """The lowest accuracy of any task at the end."""
    return min(matrix[-1])


METRICS["worst_task"] = worst_task
'''
CODEC = '''
import torch
from engram.memory.codecs import CODECS


class FourBits:
    """Two pixels in a byte."""

    name = "fourbits"

    def record_bytes(self, shape):
        return shape[0] * shape[1] * shape[2] // 2

    def encode(self, images):
        values = (images.detach().cpu().clamp(0, 1) * 15).round().to(torch.uint8).flatten(1)
        return [(row[::2] * 16 + row[1::2]).clone() for row in values]

    def decode(self, records, shape):
        packed = torch.stack(list(records))
        return torch.stack([packed // 16, packed % 16], 2).view(-1, *shape).float() / 15


CODECS["fourbits"] = lambda quality: FourBits()
'''
MATCHING = '''
from engram.summarize.matching import MATCHING, MatchingLoss, mean_feature


class PixelMeans(MatchingLoss):
    """Matches the mean image and the mean feature."""

    def target(self, theta, images, label):
        return images.mean(0), mean_feature(theta.features(images)).detach()

    def terms(self, theta, images, label, target, anchors, gamma):
        pixels, features = target
        near = (images.mean(0) - pixels).square().sum()
        return {"pixels": near, "features": (mean_feature(theta.features(images)) - features).square().sum()}


MATCHING["pixel-means"] = PixelMeans
'''
DATASET = '''
from pathlib import Path
import numpy as np
from engram.streams import DATASETS, from_arrays
from engram.streams.loading import KnownDataset


def load(place, size, skip_damaged):
    """Stripes, as wide as the number of their class."""
    images = np.stack([np.tile((np.arange(size) // (label + 1) % 2) * 200, (1, size, 1)) for label in range(4)])
    x = images[np.arange(80) % 4].astype(np.uint8)
    return from_arrays(x, np.arange(80) % 4, x[:8], np.arange(8) % 4, name="stripes")


DATASETS["stripes"] = KnownDataset("stripes", 16, 4, 80, 8, "made when it is read", lambda root: Path("made"), load)
'''


def run_with(plugin: str, folder: Path, *arguments: str) -> dict[str, object]:
    """Run `engram run` in a process of its own with this module as a plugin, and return the result."""
    assert len([line for line in plugin.splitlines() if line.strip()]) < 40
    (folder / "their_plugin.py").write_text(plugin)
    command = [sys.executable, "-m", "engram", "run", *arguments, "--plugin", "their_plugin"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (file, *_) = sorted((folder / "out").rglob("result.json"))
    result: dict[str, object] = json.loads(file.read_text())
    return result


def test_a_method_runs_by_name_also_in_the_processes_of_several_seeds(tmp_path: Path) -> None:
    result = run_with(
        METHOD, tmp_path, "cautious", "digits", *TINY, "--scheme.share", "0.25", "--seeds", "2", "--out", "out"
    )
    assert result["config"]["method"] == "cautious"  # type: ignore[index]
    assert result["config"]["settings"]["scheme"] == {"share": 0.25}  # type: ignore[index]
    assert (tmp_path / "out" / "seed-1" / "result.json").is_file()


def test_a_metric_appears_in_every_result(tmp_path: Path) -> None:
    result = run_with(METRIC, tmp_path, "er", "digits", *TINY, "--out", "out")
    assert result["worst_task"] == min(result["accuracy_matrix"][-1])  # type: ignore[index]


def test_a_codec_stores_images_within_the_limit(tmp_path: Path) -> None:
    limit = ["--memory-bytes", "1000", "--codec", "fourbits"]
    result = run_with(CODEC, tmp_path, "er", "digits", *TINY[:-2], *limit, "--out", "out")
    assert result["memory_images"] == 7
    assert result["footprint"]["images"] == 7 * 128  # type: ignore[index]


def test_a_matching_loss_names_its_terms_in_the_events(tmp_path: Path) -> None:
    chosen = ["--summarize.matching", "pixel-means", "--summarize.queue", "4", "--summarize.interval", "2"]
    result = run_with(MATCHING, tmp_path, "scr+ssd", "digits", *TINY, *chosen, "--theta.width", "4", "--out", "out")
    assert result["summarize_rounds"]
    events = [json.loads(line) for line in (tmp_path / "out" / "events.jsonl").read_text().splitlines()]
    rounds = [event for event in events if event["event"] == "round"]
    assert all(event.keys() == {"time", "event", "batch", "pixels", "features"} for event in rounds)


def test_a_data_set_is_known_by_name(tmp_path: Path) -> None:
    result = run_with(DATASET, tmp_path, "er", "stripes", "--net.width", "8", "--memory-size", "6", "--out", "out")
    assert (result["classes"], result["images_seen"]) == (4, 80)


def test_a_plugin_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "engram", "methods", "--plugin=nowhere_at_all"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert "the plugin 'nowhere_at_all' cannot be imported" in done.stderr


def test_an_installed_package_is_found_by_its_entry_point(tmp_path: Path) -> None:
    (tmp_path / "their_plugin.py").write_text(METHOD)
    facts = tmp_path / "theirs-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[engram.plugins]\ntheirs = their_plugin\n")
    done = subprocess.run(
        [sys.executable, "-m", "engram", "methods", "--json"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert json.loads(done.stdout)["cautious"]["paper"] == "a third party"


@pytest.mark.parametrize("option", [["--plugin"]])
def test_the_option_needs_a_name(option: list[str]) -> None:
    from engram.cli import main

    assert main(["methods", *option]) == 1
