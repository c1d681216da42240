"""Every number that the paper's runs were made with is a default here: whoever changes one must say so in this file."""

import dataclasses
from typing import Any

import pytest
import torch

from engram import Learner, SummaryMemory
from engram.experiment.config import RunConfig
from engram.methods import METHODS, find_method, method_settings
from engram.schemes.dvc import SMALLEST_PROBABILITY
from tests.helpers import feed, toy_stream

VIEW = {
    "crop": "published",
    "crop_scale": (0.2, 1.0),
    "crop_ratio": (3 / 4, 4 / 3),
    "flip": 0.5,
    "jitter": 0.8,
    "jitter_kind": "additive",
    "brightness": 0.4,
    "contrast": 0.4,
    "saturation": 0.4,
    "hue": 0.1,
    "gray": 0.2,
}
SGD = {"learning_rate": 0.1}
ER = {**SGD, "replay": 10, "passes": "separate"}
SCR = {**SGD, "replay": 100, "temperature": 0.07, "projection": 128, "augment": VIEW}
SHAPLEY = {"per_class": 2, "neighbors": 3}
RAND_AUGMENT = {
    "n_ops": 1,
    "degrees": 14.0,
    "shear": 0.14,
    "translate": 46.7,
    "scale_translation": None,
    "factor": 0.94,
    "cutout": 18.7,
}
SSD = {
    "interval": 6,
    "queue": 64,
    "ready": "auto",  # a run has None, a full queue, as published
    "gamma": 1.0,
    "anchors": 10,
    "learning_rate": None,
    "momentum": 0.9,
    "wait_full": False,
    "max_current_classes": 20,
    "new_classes": "reinit",
    "theta_learning_rate": 0.01,
    "theta_momentum": 0.9,
    "theta_batch": 10,
    "theta_past_images": 10,
    "theta_interval": None,
    "fast": False,
    "matching": "gradients",
    "real_images": None,
    "summary_images": None,
    "augment": {"brightness": 0.5, "saturation": 2.0, "contrast": 0.5, "shift": 0.125, "enabled": True},
}
PROXIES: dict[str, Any] = {
    **SGD,
    "replay": 10,
    "temperature": 0.09,
    "views": "two",
    "passes": "separate",
    "augment": VIEW | {"jitter_kind": "multiplicative"},
}
PUBLISHED: dict[str, dict[str, dict[str, Any]]] = {
    "er-ema": {
        "scheme": PROXIES | {"replay": 64, "views": "one", "passes": "joint"},
        "augment": {"view": VIEW, "side": 0.75},
        "classifier": {"mirror": True},
    },
    "fine-tune": {"scheme": SGD},
    "iid-offline": {"scheme": SGD},
    "ewc++": {"scheme": {**SGD, "strength": 1.0, "fisher_interval": 50, "fisher_share": 0.9}},
    "lwf": {"scheme": {**SGD, "temperature": 2.0}},
    "a-gem": {"scheme": {**SGD, "replay": 10}},
    "er": {"scheme": ER},
    "er-ace": {"scheme": {**SGD, "replay": 10}},
    "mkd": {
        "scheme": {
            "replay": 64,
            "weight": 5.5,
            "temperature": 4.0,
            "learning_rate": 0.0005,
            "weight_decay": 0.0001,
            "augment": VIEW,
        }
    },
    "gdumb": {
        "classifier": {
            "epochs": 64,  # published: 256
            "batch": 16,
            "learning_rate": 0.05,
            "lowest_learning_rate": 0.0005,
            "momentum": 0.9,
            "weight_decay": 1e-6,
            "cutmix": 0.5,
            "shift": 4,
            "flip": 0.5,
            "clip": 10.0,
        }
    },
    "der++": {"scheme": {**SGD, "replay": 10, "alpha": 0.3, "beta": 0.5}},
    "pcr": {"scheme": PROXIES},
    "mir": {"scheme": ER, "retrieval": {"candidates": 50}},
    "gss": {"scheme": ER, "policy": {"batch": 10, "references": 10, "first_score": 0.1}},
    "aser": {"scheme": {**ER, "passes": "thrice"}, "retrieval": SHAPLEY, "policy": SHAPLEY},
    "dvc": {
        "scheme": {
            **SGD,
            "replay": 10,
            "balance": 1 / 3,
            "agreement": 4.0,
            "joint_width": 128,
            "augment": VIEW | {"jitter": 1.0, "jitter_kind": "multiplicative"},
        },
        "retrieval": {"candidates": 50},
    },
    "scr": {"scheme": SCR},
    "ocm": {
        "scheme": {
            "replay": 64,
            "replay_per_class": 7,
            "temperature": 0.07,
            "projection": 128,
            "learning_rate": 0.001,
            "betas": (0.9, 0.99),
            "weight_decay": 0.0001,
            "augment": VIEW | {"crop": "aligned", "crop_scale": (0.3, 1.0), "jitter": 0.0, "gray": 0.25},
        }
    },
    "rar": {"scheme": {**ER, "passes": "joint"}, "augment": RAND_AUGMENT},
    "rar-s": {"scheme": SCR, "augment": RAND_AUGMENT},
    "rar-ncm": {"scheme": {**ER, "passes": "joint"}, "augment": RAND_AUGMENT},
    "scr+ssd": {
        "scheme": SCR,
        "summarize": SSD,
        "theta": {"width": 128, "depth": 3},
        "policy": {"count_before_batch": None},
    },
}


def plain(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value


@pytest.mark.parametrize("method", [*METHODS, "scr+ssd"])
def test_settings_are_the_published_ones(method: str) -> None:
    settings = method_settings(find_method(method), {})
    found = {room: {name: plain(value) for name, value in own.items()} for room, own in settings.items() if own}
    assert found == {"classifier": {"mirror": False}} | PUBLISHED[method] | {"net": {"width": 20}}
    assert find_method(method).repeats == {"er-ema": 2, "rar": 10, "rar-s": 10, "rar-ncm": 10}.get(method, 1)


def test_numbers_that_are_no_settings_of_parts() -> None:
    for options in (Learner().options, SummaryMemory().options, RunConfig().options):
        assert options["boundary_gap"] == 50
    assert SMALLEST_PROBABILITY == 2.2e-16
    assert RunConfig().options["epochs"] == 50
    assert (RunConfig("iid-offline").options["batch"], RunConfig("er").options["batch"]) == (128, 10)


@pytest.mark.parametrize("method", ["fine-tune", "scr", "dvc", "scr+ssd"])
def test_nets_are_trained_by_plain_sgd(method: str) -> None:
    learner = feed(Learner(method, memory_size=4, net={"width": 8}), toy_stream(1, 1))
    (group,) = learner.optimizer.param_groups
    assert isinstance(learner.optimizer, torch.optim.SGD)
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.1, 0, 0)


@pytest.mark.parametrize("stream", ["paper", "paper-shuffled", "strict", "blurry(0.1)"])
def test_runs_summarize_from_a_full_queue_as_published(stream: str) -> None:
    settings = RunConfig("scr+ssd", stream=stream).settings["summarize"]
    assert (settings["queue"], settings["ready"]) == (64, None)
    given = RunConfig("scr+ssd", stream=stream, settings={"summarize": {"ready": "auto"}})
    assert given.settings["summarize"]["ready"] == "auto"


def test_the_published_translation_is_that_of_runs_on_the_papers_streams_alone() -> None:
    def scaled(stream: str, **augment: bool) -> Any:
        config = RunConfig("rar-s", dataset="digits", stream=stream, settings={"augment": augment} if augment else {})
        return config.settings["augment"]["scale_translation"]

    assert scaled("paper") is scaled("paper-shuffled") is False
    assert scaled("strict") is scaled("blurry(0.1)") is None
    assert scaled("paper", scale_translation=True) is True
