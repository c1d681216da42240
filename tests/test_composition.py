"""Learners composed from parts instead of a name: what they are, that they are saved by class, and what is refused."""

import copy
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engram import InputError, Learner, Method, RunConfig
from engram.base.batch import Batch
from engram.base.context import StepContext
from engram.base.errors import UnknownPartError
from engram.classifiers import NearestClassMean, Softmax
from engram.experiment.run import stream_of
from engram.memory import Dynamic, Reservoir
from engram.methods import METHODS
from engram.retrieval import MaximallyInterfered, RandomRetrieval
from engram.schemes import ExperienceReplay, SupervisedContrastiveReplay
from engram.schemes.labelled import LabelScheme, label_loss
from engram.testing import feed, fingerprint, small_options, toy_images, toy_stream

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


def test_a_method_brings_options_and_given_ones_win() -> None:
    chosen = Learner("er-ema").options
    assert (chosen["average"], chosen["codec"], chosen["memory_bytes"]) == (0.99, "avif(35)", 300_000)
    assert (chosen["memory_size"], chosen["answer_from"]) == (None, "averaged")
    limited = Learner("er-ema", memory_size=50, codec="uint8", average=None).options
    assert (limited["memory_size"], limited["memory_bytes"], limited["codec"]) == (50, None, "uint8")
    assert limited["answer_from"] == "net"
    config = RunConfig("er-ema", dataset="digits", memory_bytes="20KB")
    assert (config.options["memory_bytes"], config.options["average"]) == (20_000, 0.99)
    assert config.replace(memory_bytes=None, memory_size=7).options["memory_size"] == 7


def test_heads_of_our_own_method_grow_on_paper_streams_too() -> None:
    """Published softmax methods have all classes from the start; this one trains on the classes seen alone."""
    for method, announced in (("er", 10), ("er-ema", None)):
        config = RunConfig(method, dataset="digits", stream="paper", memory_size=10)
        assert config.filled(stream_of(config)).options["classes_total"] == announced


def test_er_ema_trains_on_one_view_of_stream_and_replay_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """With views that mirror: the loss of pcr over the mirrored stream and the mirrored replay images."""
    monkeypatch.setattr("engram.augmentations.random_view.augment_view", lambda images, *_: images.flip(3))
    options = small_options("er-ema") | {"net": {"width": 16}, "repeats": 1}
    mine = feed(Learner("er-ema", **options), toy_stream(1, 4))
    seen: list[float] = []
    plain = mine.scheme.loss

    def note(stream, replay, ctx):
        loss = plain(stream, replay, ctx)
        twin = copy.deepcopy(mine.model.net).train()
        images = torch.cat([torch.tensor(toy_images([0, 1], 9)) / 255, memory.x]).flip(3)
        labels = torch.cat([torch.tensor([0, 1]), memory.y])
        features = torch.nn.functional.normalize(twin(images)[0], dim=1)
        proxies = torch.nn.functional.normalize(twin.heads["logits"].weight, dim=1)
        own = (features @ proxies[labels].T / 0.09).exp()  # one column for each image of the step
        chosen = (features * proxies[labels]).sum(1) / 0.09
        expected = (own.sum(1).log() - chosen).mean()
        seen.append(float((loss - expected).detach().abs()))
        return loss

    mine.scheme.loss = note
    mine.retrieval.select = lambda stream, count, ctx: ctx.memory.filled()
    memory = mine.memory.read(mine.memory.filled())
    mine.observe(toy_images([0, 1], 9), [0, 1])
    assert seen == [pytest.approx(0, abs=1e-4)]


def test_a_memory_that_the_method_has_already_is_refused() -> None:
    for wrong, meant in (("gss+gss", "gss"), ("aser+aser", "aser")):
        with pytest.raises(InputError, match=f"has the memory {meant} already: did you mean '{meant}'"):
            Learner(wrong)
    with pytest.raises(InputError, match=r"did you mean 'scr\+ssd'"):
        Learner("ssd+scr")
    with pytest.raises(InputError) as unknown:
        Learner("nonsense")
    assert "er-ema" in str(unknown.value)
    assert "+" not in str(unknown.value).replace("der++", "").replace("ewc++", ""), "combinations are not listed"


def test_a_learner_says_what_it_is() -> None:
    learner = Learner("er", memory_size=4, net={"width": 8})
    learner.observe(toy_images([0, 1], 0), [0, 1])
    assert repr(learner) == "Learner('er', K=4: 1 batches, 2 classes seen, on cpu)"
    assert repr(Learner()) == "Learner('er-ema', 300,000 bytes: 0 batches, 0 classes seen, on cpu)"
