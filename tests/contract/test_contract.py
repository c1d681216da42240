"""Every method of the paper keeps the contract."""

from typing import Any

import pytest

from engram import InputError, Learner
from engram.methods import find, names
from engram.testing import CHECKS
from tests.helpers import SMALL_THETA

CHECKED = [
    *("fine-tune", "iid-offline", "ewc++", "lwf", "a-gem", "er", "mir", "gss", "aser", "dvc", "scr", "ocm", "rar"),
    *("rar-s", "er+ssd", "dvc+ssd", "scr+ssd", "rar+ssd", "rar-s+ssd", "ocm+ssd", "mir+ssd"),
    *("scr+gss", "scr+aser", "scr+dynamic", "er+dynamic"),
]


def small(method: str) -> dict[str, Any]:
    """Options that make a learner quick; what they leave alone is the method's own."""
    options: dict[str, Any] = {"memory_size": 8, "boundary_gap": 5, "net": {"width": 8}}
    if method.endswith("+ssd"):
        options |= SMALL_THETA
    if find(method).repeats > 1:
        options |= {"repeats": 2}
    return options


@pytest.mark.parametrize("method", CHECKED)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(method: str, check: Any) -> None:
    check(lambda **changes: Learner(method, **small(method) | changes))


def test_every_name_is_listed() -> None:
    assert set(CHECKED) <= set(names())


@pytest.mark.parametrize("name", ["iid-offline+ssd", "fine-tune+dynamic", "lwf+gss"])
def test_compositions_without_replay_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="needs replay"):
        Learner(name)
    assert name not in names()
