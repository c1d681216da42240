"""Whatever `save` accepts loads again as it was; what it refuses leaves the save before as it is."""

import math
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engram import InputError, Learner
from engram.persistence import checkpoint
from engram.persistence.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from tests.faults.soak import amount
from tests.helpers import feed, small_learner, toy_images, toy_stream

KEYS = st.one_of(
    st.sampled_from(["$tensor", "$int_keys", "$items", "a", "a.b", "b", "", "1", "__metadata__"]),
    st.text(st.characters(exclude_categories=[]), max_size=5),
    st.integers(-3, 3),
    st.booleans(),
    st.floats(),
)
TENSORS = st.one_of(
    st.floats(width=32).map(torch.tensor),
    st.lists(st.integers(-5, 5), max_size=4).map(torch.tensor),
    st.sampled_from([torch.bool, torch.uint8, torch.float16, torch.bfloat16, torch.float64, torch.complex64]).map(
        lambda kind: torch.arange(9).to(kind)[1::2]
    ),
    st.just(torch.eye(3).to_sparse()),
    st.just(torch.arange(12.0).view(3, 4).T),
)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(exclude_categories=[]), max_size=9),
    TENSORS, st.just({1, 2}), st.just(2**12_000), st.just(b"bytes"),
)  # fmt: skip
TREES = st.recursive(
    VALUES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)


def exactly(a: Any, b: Any) -> bool:
    """Equal in type, order and bits; NaN equals itself, a tuple its list."""
    if isinstance(a, torch.Tensor):
        same_kind = isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape
        return same_kind and bool((torch.isclose(a, b, 0, 0, equal_nan=True)).all())
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(exactly(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return isinstance(b, list) and len(a) == len(b) and all(map(exactly, a, b))
    if isinstance(a, float):
        return type(b) is float and (a == b or (math.isnan(a) and math.isnan(b)))
    return type(a) is type(b) and a == b


@settings(max_examples=amount(200, 5000), deadline=None)
@given(TREES)
def test_a_tree_is_refused_or_comes_back_exactly(tree: Any) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)  # for speed
        write_checkpoint(Path(folder), {"before": 1})
        try:
            write_checkpoint(Path(folder), {"extra": tree})
        except InputError:
            assert read_checkpoint(Path(folder)) == {"before": 1}
        else:
            assert exactly({"extra": tree}, read_checkpoint(Path(folder)))


@pytest.mark.parametrize(
    "extra",
    [
        {"$tensor": "nothing"},
        {"$int_keys": [[1, 2]], "x": torch.zeros(2)},
        {"a": {"b": torch.tensor(1.0)}, "a.b": torch.tensor(2.0)},
        {1: "integer", "1": "string"},
        {"\ud800": torch.zeros(1), "é": torch.ones(1), "_": torch.zeros(2)},
        [math.inf, -0.0, 2**9000],
    ],
    ids=str,
)
def test_extras_that_were_lost_before_come_back(extra: Any, tmp_path: Path) -> None:
    learner = feed(small_learner("er"), toy_stream(1, 1))
    for _ in range(3):
        learner.save(tmp_path, extra=extra)
    assert exactly(extra, Learner.load_with_extra(tmp_path)[1])


def shared_lists() -> list[Any]:
    found: list[Any] = []
    for _ in range(60):
        found = [found, found]
    return found


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"big": 10**5000}, "integer of 16,610 bits"),
        ({True: 1}, "the key True is bool"),
        ({1.5: 1}, "the key 1.5 is float"),
        ({"a": {"b": {1}}}, r"\.extra\.a\.b: set"),
        ({"long": "x" * (1 << 26)}, r"state\.json would have 67,.* bytes"),
        (shared_lists(), "at most 100,000 values"),
        ({"sparse": torch.eye(2).to_sparse()}, "sparse"),
    ],
    ids=["integer", "bool key", "float key", "set", "long", "shared", "sparse"],
)
def test_what_could_not_be_loaded_is_refused_and_the_learner_stays_saved(
    extra: Any, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engram.persistence.state.MOST_NODES", 100_000)
    learner = feed(small_learner("er"), toy_stream(1, 1))
    learner.save(tmp_path, extra="kept")
    for _ in range(2):
        with pytest.raises(InputError, match=reason):
            learner.save(tmp_path, extra=extra)
    assert Learner.load_with_extra(tmp_path)[1] == "kept"


def test_a_list_inside_itself_is_refused(tmp_path: Path) -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(InputError, match="100 levels"):
        write_checkpoint(tmp_path, circle)


@pytest.mark.parametrize("label", ["x" * 70_000_000, 10**5000, -(2**10_000)], ids=["string", "integer", "negative"])
def test_labels_that_cannot_be_saved_are_refused_when_they_come(label: Any) -> None:
    with pytest.raises(InputError, match="a label is too long"):
        small_learner("er").observe(toy_images([0], 0), [label])


def test_a_disk_that_returns_other_bytes_is_noticed_before_current_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path, {"number": 0})
    write = checkpoint.write_synced

    def forget(path: Path, content: bytes) -> None:
        write(path, content.replace(b'"number": 1', b'"number": 7'))

    monkeypatch.setattr(checkpoint, "write_synced", forget)
    with pytest.raises((InputError, CheckpointError), match="checksum"):
        write_checkpoint(tmp_path, {"number": 1})
    assert read_checkpoint(tmp_path) == {"number": 0}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["CURRENT", "gen-1", "lock"]
