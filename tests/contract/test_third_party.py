"""The five steps of CONTRIBUTING, followed for real: a method of somebody else's, by name everywhere."""

import json
from pathlib import Path

import pytest
from torch import Tensor

from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.classifiers import Softmax
from engram.cli import main
from engram.memory import Reservoir
from engram.methods import METHODS, Method
from engram.retrieval import RandomRetrieval
from engram.schemes.labelled import LabelScheme, label_loss
from engram.testing import check_method


class ReplayMostly(LabelScheme):
    """Trains on the replay batch, and on the stream with less weight.

    Args:
        stream_weight: of the stream batch.
        replay: memory images of one step.
    """

    provides = frozenset({"logits", "replay"})

    def __init__(self, stream_weight: float = 0.5, replay: int = 8) -> None:
        super().__init__(learning_rate=0.1)
        self.stream_weight, self.replay = stream_weight, replay
        self.add_state("steps", 0)

    def replay_size(self, ctx: StepContext) -> int:
        return self.replay

    def loss(self, stream: Batch, replay: Batch | None, ctx: StepContext) -> Tensor:
        self.steps += 1
        loss = self.stream_weight * label_loss(stream, ctx)
        return loss if replay is None else loss + label_loss(replay, ctx)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(METHODS, "mine", Method(ReplayMostly, RandomRetrieval, Reservoir, Softmax, paper="us, tonight"))
    return "mine"


def test_it_keeps_the_contract(registered: str) -> None:
    check_method(registered)


def test_it_runs_lists_and_composes_by_name(
    registered: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    tiny = ["--tasks", "2", "--images-per-class", "15", "--memory-size", "4", "--net.width", "8"]
    assert main(["run", "mine", "digits", *tiny, "--scheme.stream-weight", "0.25", "--out", str(out)]) == 0
    assert json.loads((out / "result.json").read_text())["config"]["settings"]["scheme"] == {
        "stream_weight": 0.25,
        "replay": 8,
    }
    capsys.readouterr()
    assert main(["methods", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["mine"]["settings"]["scheme"] == {"stream_weight": 0.5, "replay": 8}
    assert "mine+ssd" in listed


class Forgetful(ReplayMostly):
    """Weighs the stream by a count it never declares as state."""

    def loss(self, stream: Batch, replay: Batch | None, ctx: StepContext) -> Tensor:
        self.stream_weight += 0.01
        return super().loss(stream, replay, ctx)


def test_a_breach_of_contract_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "forgetful", Method(Forgetful, RandomRetrieval, Reservoir, Softmax, paper="us"))
    with pytest.raises(AssertionError, match="forgetful: resumes_exactly: stopping after batch 5"):
        check_method("forgetful")
