"""Learners composed from parts instead of a name: what they are, that they are saved by class, and what is refused."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engram import InputError, Learner, Method
from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.errors import UnknownPartError
from engram.classifiers import NearestClassMean, Softmax
from engram.memory import Dynamic, Reservoir
from engram.methods import METHODS
from engram.retrieval import MaximallyInterfered, RandomRetrieval
from engram.schemes import ExperienceReplay, SupervisedContrastiveReplay
from engram.schemes.labelled import LabelScheme, label_loss
from engram.testing import feed, fingerprint, toy_stream

SMALL = {"memory_size": 6, "net": {"width": 8}}


class StreamOnly(LabelScheme):
    """A scheme of somebody's own."""

    provides = frozenset({"logits", "replay"})

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__(learning_rate=0.1)
        self.weight = weight

    def loss(self, stream: Batch, replay: Batch | None, ctx: StepContext) -> Tensor:
        return self.weight * label_loss(stream, ctx)


def test_parts_beside_a_name_take_the_place_of_its_own() -> None:
    learner = Learner("er", retrieval=MaximallyInterfered(candidates=7), scheme={"replay": 3}, **SMALL)
    named = Learner("mir", retrieval={"candidates": 7}, scheme={"replay": 3}, **SMALL)
    assert learner.retrieval.settings == {"candidates": 7}
    for each in (learner, named):
        feed(each, toy_stream(2, 4))
    assert fingerprint(learner) == fingerprint(named)


def test_parts_alone_make_a_method() -> None:
    composed = Learner(scheme=SupervisedContrastiveReplay(replay=5), policy=Dynamic(), **SMALL)
    named = Learner("scr+dynamic", scheme={"replay": 5}, **SMALL)
    assert composed.method is None
    assert isinstance(composed.classifier, NearestClassMean)
    assert isinstance(Learner(scheme=ExperienceReplay(), **SMALL).classifier, Softmax)
    for each in (composed, named):
        feed(each, toy_stream(2, 4))
    assert fingerprint(composed) == fingerprint(named)


def test_no_two_learners_share_a_part() -> None:
    scheme = SupervisedContrastiveReplay(replay=5)
    first, second = (Learner(scheme=scheme, **SMALL) for _ in range(2))
    assert first.scheme is not scheme
    assert first.scheme is not second.scheme


@pytest.mark.parametrize("kind", ["parts", "part beside a name", "Method"])
def test_a_composed_learner_is_saved_by_import_path_and_settings_and_goes_on_exactly(kind: str, tmp_path: Path) -> None:
    make = {
        "parts": lambda: Learner(scheme=StreamOnly(weight=0.5), policy=Dynamic(), **SMALL),
        "part beside a name": lambda: Learner("er", scheme=StreamOnly(weight=0.5), **SMALL),
        "Method": lambda: Learner(Method(StreamOnly, RandomRetrieval, Reservoir, Softmax, paper="ours"), **SMALL),
    }[kind]
    stream = list(toy_stream(2, 4))
    whole, half = make(), make()
    feed(whole, stream)
    feed(half, stream[:5])
    half.save(tmp_path / "half")
    again = Learner.load(tmp_path / "half")
    assert type(again.scheme) is StreamOnly
    assert again.scheme.settings == half.scheme.settings
    feed(again, stream[5:])
    assert fingerprint(again) == fingerprint(whole)


def test_loading_never_imports_code_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_parts.py").write_text(
        "from engram.schemes import ExperienceReplay\nclass Theirs(ExperienceReplay):\n    '''Theirs.'''\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import their_parts  # type: ignore[import-not-found]

    learner = Learner("er", scheme=their_parts.Theirs(), **SMALL)
    feed(learner, toy_stream(1, 2))
    learner.save(tmp_path / "saved")
    monkeypatch.delitem(sys.modules, "their_parts")
    with pytest.raises(UnknownPartError, match="its scheme is their_parts:Theirs, which is not known here: import"):
        Learner.load(tmp_path / "saved")
    assert "their_parts" not in sys.modules


def test_what_does_not_go_together_is_refused_with_the_reason() -> None:
    with pytest.raises(InputError, match="policy is a ExperienceReplay: need a Policy"):
        Learner("er", policy=ExperienceReplay())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Dynamic needs replay, which no part of this method provides"):
        Learner("fine-tune", policy=Dynamic())
    with pytest.raises(InputError, match="scheme is 5: need settings by name or a Scheme"):
        Learner("er", scheme=5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="method is 5: need a name"):
        Learner(5)  # type: ignore[arg-type]


def test_a_registered_method_given_as_an_object_is_known_by_its_name() -> None:
    assert Learner(METHODS["er"]).method == "er"
    assert "er" in repr(feed(Learner("er", **SMALL), toy_stream(1, 1)))
    assert torch.device("cpu") == Learner("er").device or torch.cuda.is_available()
