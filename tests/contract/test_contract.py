"""Every method of the paper keeps the contract."""

from typing import Any

import pytest

from engram import InputError, Learner
from engram.base.knn_shapley import knn_shapley
from engram.methods import METHODS, names
from engram.retrieval import MaximalGradientInterference, MaximallyInterfered
from engram.testing import CHECKS, feed, small_options, toy_stream

CHECKED = [
    *("er-ema", "er-ace", "pcr", "mkd", "der++", "gdumb"),
    *("fine-tune", "iid-offline", "ewc++", "lwf", "a-gem", "er", "mir", "gss", "aser", "dvc", "scr", "ocm", "rar"),
    *("rar-s", "rar-ncm", "er+ssd", "dvc+ssd", "scr+ssd", "rar+ssd", "rar-s+ssd", "ocm+ssd", "mir+ssd"),
    *("scr+gss", "scr+aser", "scr+dynamic", "er+dynamic", "der+++ssd", "der+++aser"),
    *("gdumb+ssd", "gdumb+dynamic"),
]


FISHER: dict[str, Any] = {"ewc++": {"scheme": {"fisher_interval": 3}}}
"""So that the penalty acts within a toy stream."""


@pytest.mark.parametrize("method", CHECKED)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(method: str, check: Any) -> None:
    check(lambda **changes: Learner(method, **small_options(method) | FISHER.get(method, {}) | changes))


def test_the_contract_is_checked_on_learners_that_use_all_of_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retrievals choose by their scores, the penalty is not zero, rounds take place."""
    scored: list[str] = []
    for retrieval in (MaximallyInterfered, MaximalGradientInterference):
        original = retrieval.measure
        monkeypatch.setattr(
            retrieval,
            "measure",
            lambda self, *rest, original=original, name=retrieval.__name__: (
                scored.append(name) or original(self, *rest)
            ),
        )
    monkeypatch.setattr(
        "engram.retrieval.aser.knn_shapley", lambda *rest: scored.append("ShapleyRetrieval") or knn_shapley(*rest)
    )
    for method in ("mir", "dvc", "aser"):
        feed(Learner(method, **small_options(method)), toy_stream(2, 8))
    assert {"MaximallyInterfered", "MaximalGradientInterference", "ShapleyRetrieval"} <= set(scored)
    ewc = feed(Learner("ewc++", **small_options("ewc++") | FISHER["ewc++"]), toy_stream(2, 8))
    assert max(float(values.max()) for values in ewc.scheme.importance.values()) == 1
    assert feed(Learner("scr+ssd", **small_options("scr+ssd")), toy_stream(2, 8)).rounds > 0


def test_every_name_is_listed() -> None:
    assert set(METHODS) <= set(CHECKED) <= set(names())


@pytest.mark.parametrize("name", ["iid-offline+ssd", "fine-tune+dynamic", "lwf+gss"])
def test_compositions_without_replay_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="needs replay"):
        Learner(name)
    assert name not in names()
