"""The averaged net: its formula, that it changes nothing else, heads that grow, saving, and what answers."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from engram import InputError, Learner
from engram.experiment.config import RunConfig
from engram.experiment.run import run
from tests.helpers import feed, toy_stream

STREAM = list(toy_stream(2, 4))
SMALL = {"memory_size": 12, "net": {"width": 8}, "theta": {"width": 8}}


def learner(method: str, **options: object) -> Learner:
    settings = {name: value for name, value in SMALL.items() if name != "theta" or "+ssd" in method}
    return Learner(method, **settings | options)  # type: ignore[arg-type]


def net_state(model: object) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.net.state_dict().items()}  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["er", "scr+ssd", "dvc", "ocm"])
def test_averaging_changes_nothing_about_training(method: str) -> None:
    plain, averaged = learner(method), learner(method, average=0.9)
    for each in (plain, averaged):
        feed(each, STREAM)
    assert net_state(plain.model).keys() == net_state(averaged.model).keys()
    for name, tensor in net_state(plain.model).items():
        assert torch.equal(tensor, averaged.model.net.state_dict()[name]), name
    assert torch.equal(plain.memory.ids, averaged.memory.ids)


@pytest.mark.parametrize("method", ["er", "scr"])
def test_the_average_follows_its_formula_batch_norm_statistics_included(method: str) -> None:
    """Against a loop over the net after each batch; the classes come at once, so no head grows in between."""
    taught = learner(method, average=0.8)
    x, y = STREAM[0]
    taught.observe(x, y)
    steps = taught.averaged.steps
    expected = net_state(taught.averaged)
    for _ in range(6):
        taught.observe(x, y)
        decay = min(0.8, (1 + steps) / (10 + steps))
        for name, tensor in net_state(taught.model).items():
            expected[name] = decay * expected[name] + (1 - decay) * tensor if tensor.is_floating_point() else tensor
        steps += 1
    assert taught.averaged.steps == steps
    for name, tensor in net_state(taught.averaged).items():
        torch.testing.assert_close(tensor, expected[name], msg=name)
    assert not torch.equal(
        taught.averaged.net.state_dict()["backbone.norm.running_mean"],
        taught.model.net.state_dict()["backbone.norm.running_mean"],
    )


@pytest.mark.parametrize("method", ["er", "dvc"])
def test_a_growing_head_begins_its_average_with_the_same_new_rows(method: str) -> None:
    taught = learner(method, average=0.99)
    (x, y), (late_x, late_y) = STREAM[0], STREAM[-1]
    taught.observe(x, y)
    fresh = copy.deepcopy(taught)
    fresh.labels = [*fresh.labels, 99]
    fresh._grow()
    new = len(fresh.labels) - 1
    assert torch.equal(fresh.averaged.net.heads["logits"].weight[new], fresh.model.net.heads["logits"].weight[new])
    taught.observe(late_x, late_y)
    for name, tensor in net_state(taught.model).items():
        assert taught.averaged.net.state_dict()[name].shape == tensor.shape


def test_answers_come_from_the_averaged_net_unless_told_otherwise() -> None:
    taught, plain = learner("er", average=0.9), learner("er")
    for each in (taught, plain):
        feed(each, STREAM)
    x, _ = STREAM[0]
    assert not torch.equal(taught.scores(x), plain.scores(x))
    torch.testing.assert_close(taught.scores(x, answer_from="net"), plain.scores(x), rtol=0, atol=0)
    assert torch.equal(taught.scores(x), taught.scores(x, answer_from="averaged"))
    reading = learner("er", average=0.9, answer_from="net")
    feed(reading, STREAM)
    assert torch.equal(reading.scores(x), plain.scores(x))


def test_class_means_of_the_two_nets_are_kept_apart() -> None:
    taught = learner("scr", average=0.9)
    feed(taught, STREAM)
    x, _ = STREAM[0]
    first = taught.scores(x), taught.scores(x, answer_from="net")
    again = taught.scores(x), taught.scores(x, answer_from="net")
    assert not torch.equal(*first)
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))


def test_the_average_is_saved_exactly_and_counted(tmp_path: Path) -> None:
    whole, half = learner("er", average=0.9), learner("er", average=0.9)
    feed(whole, STREAM)
    feed(half, STREAM[:4])
    half.save(tmp_path / "half")
    rest = Learner.load(tmp_path / "half")
    feed(rest, STREAM[4:])
    for name, tensor in net_state(whole.averaged).items():
        assert torch.equal(tensor, rest.averaged.net.state_dict()[name])
    assert whole.footprint()["averaged"] == whole.footprint()["net"]
    assert learner("er").footprint()["averaged"] == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"average": 1.0}, "above 0 and below 1"),
        ({"average": True}, "above 0 and below 1"),
        ({"answer_from": "averaged"}, "nothing is averaged"),
        ({"average": 0.9, "answer_from": "both"}, "need 'net' or 'averaged', or none"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        learner("er", **options)


def test_a_run_gives_both_readings_from_one_training(tmp_path: Path) -> None:
    config = RunConfig("er", tasks=2, images_per_class=12, memory_size=4, settings={"net": {"width": 8}})
    plain = run(config, tmp_path / "plain")
    both = run(config.replace(average=0.9, answer_from="net"), tmp_path / "both")
    averaged = run(config.replace(average=0.9), tmp_path / "averaged")
    assert both.evaluation.matrix == plain.evaluation.matrix
    assert plain.readings.keys() == {"net"}
    assert both.readings == averaged.readings
    assert averaged.evaluation == both.readings["averaged"]
    assert averaged.to_dict()["average_end_accuracy"] == both.readings["averaged"].average_end_accuracy


def test_asking_a_learner_without_an_average_for_it_is_refused() -> None:
    taught = learner("er")
    x, y = STREAM[0]
    taught.observe(x, y)
    with pytest.raises(InputError, match="no averaged net"):
        taught.predict(np.asarray(x), answer_from="averaged")
