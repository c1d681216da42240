"""Malformed batches and checkpoints by the thousand: only documented refusals, and nothing changed by them."""

import copy
import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from engram import InputError, Learner
from engram.base.errors import NonFiniteLossError
from engram.persistence.checkpoint import FORMAT, CheckpointError
from engram.testing import fingerprint
from tests.faults.soak import amount
from tests.helpers import feed, small_learner, toy_images, toy_stream

X, Y = toy_images([0, 1], 5), [0, 1]


def odd_shape(dice: random.Random) -> tuple[int, ...]:
    return tuple(dice.choice([0, 1, 2, 3, 15, 16, 17]) for _ in range(dice.randint(0, 5)))


def odd_images(dice: random.Random) -> Any:
    """Images no learner of 1×16×16 images may accept."""
    shape = (2, 1, 16, 16)
    return dice.choice(
        [
            lambda: np.zeros(next(s for s in iter(lambda: odd_shape(dice), None) if s != shape), dtype=np.uint8),
            lambda: np.full(shape, dice.choice([np.nan, np.inf, -np.inf, -0.01, 1.5, 255.0, 1e30]), dtype=np.float32),
            lambda: X.astype(dice.choice([np.int64, np.int8, np.uint16, bool, np.complex64])),
            lambda: torch.full(shape, float("nan"), dtype=dice.choice([torch.float16, torch.float64, torch.bfloat16])),
            lambda: dice.choice(
                [None, 3, "images", b"images", object(), [], [[]], {}, {"x": X}, X.tolist()[:1], iter(X)]
            ),
            lambda: np.array([X[0], None], dtype=object),
            lambda: np.array(["image"] * 2),
            lambda: np.ma.masked_array(np.full(shape, np.nan), mask=False),
            lambda: [torch.zeros(1, 16, 16), torch.zeros(1, 16, 17)],
            lambda: torch.zeros(shape, dtype=torch.complex64),
            lambda: torch.zeros(shape).to_sparse(),
            lambda: [torch.zeros(1, 16, 16, requires_grad=True)] * 2,
        ]
    )()


def odd_labels(dice: random.Random) -> Any:
    """Labels no learner of integer labels may accept with two images."""
    return dice.choice(
        [
            lambda: dice.choice([None, 0, "ab", b"ab", object(), {}, {0, 1}, iter([0, 1]), [[0], [1]], [0, None]]),
            lambda: list(range(dice.choice([0, 1, 3, 50]))),
            lambda: dice.choice([["a", "b"], [0, "a"], [0.0, 1.0], [True, False], [0, 1.5], [b"a", b"b"]]),
            lambda: np.zeros(2, dtype=dice.choice([np.float32, bool, "datetime64[s]"])),
            lambda: np.array([None, 0], dtype=object),
            lambda: torch.zeros(2, dtype=dice.choice([torch.float32, torch.bool])),
            lambda: np.zeros((2, 2), dtype=int),
            lambda: torch.zeros(2, 1, dtype=torch.long),
            lambda: [float("nan"), 1],
        ]
    )()


@pytest.mark.parametrize("method", ["scr+ssd", "er"])
def test_malformed_batches_are_refused_and_change_nothing(method: str) -> None:
    learner = feed(small_learner(method), toy_stream(2, 4))
    before = fingerprint(learner)
    dice = random.Random(method)
    for number in range(amount(250, 2500)):
        x, y = (odd_images(dice), Y) if number % 2 else (X, odd_labels(dice))
        with pytest.raises(InputError):
            learner.observe(x, y)
        if number % 2:
            with pytest.raises(InputError):
                learner.predict(np.zeros((1, 2, 3)) if _only_miscounted(x) else x)
        if number % 25 == 0:
            assert fingerprint(learner) == before
    assert fingerprint(learner) == before
    learner.observe(X, Y)


def _only_miscounted(x: Any) -> bool:
    """Good images, only not two of them."""
    return hasattr(x, "shape") and len(x.shape) == 4 and tuple(x.shape[1:]) == (1, 16, 16) and len(x) != 2


ODD_VALUES = [None, -1, 0, 3, 2**40, 1e300, float("inf"), "x", "../x", [], {}, [1, 2], {"$tensor": "nothing"}, True]


def mutate(node: Any, dice: random.Random) -> Any:
    """The tree with something at a random place replaced, removed, doubled or renamed."""
    if isinstance(node, dict) and node and dice.random() < 0.9:
        key = dice.choice(list(node))
        action = dice.random()
        if action < 0.8:
            return node | {key: mutate(node[key], dice)}
        if action < 0.9:
            return {name: value for name, value in node.items() if name != key}
        return node | {dice.choice(["extra", "", "$tensor", "$int_keys"]): dice.choice(ODD_VALUES)}
    if isinstance(node, list) and node and dice.random() < 0.8:
        index = dice.randrange(len(node))
        changed = [*node]
        changed[index] = mutate(node[index], dice)
        return dice.choice([changed, node[:index], node + node[:1]])
    return copy.deepcopy(dice.choice(ODD_VALUES))


def mutate_tensors(tensors: dict[str, torch.Tensor], dice: random.Random) -> dict[str, torch.Tensor]:
    name = dice.choice(list(tensors))
    tensor = tensors[name]
    changed = dice.choice(
        [
            lambda: tensor.new_zeros(odd_shape(dice)),
            lambda: tensor.to(dice.choice([torch.float64, torch.int64, torch.uint8, torch.bool, torch.float16])),
            lambda: tensor.reshape(-1),
            lambda: torch.cat([tensor.reshape(-1)] * 2),
            lambda: None,
        ]
    )()
    rest = {other: value for other, value in tensors.items() if other != name}
    return rest if changed is None else rest | {name: changed.clone()}


def rewrite(folder: Path, dice: random.Random) -> None:
    """Make a hostile generation: changed, with checksums that match, or plainly damaged."""
    generation = folder / (folder / "CURRENT").read_text()
    state, data = generation / "state.json", generation / "state.safetensors"
    kind = dice.random()
    if kind < 0.6:
        state.write_text(json.dumps(mutate(json.loads(state.read_text()), dice)))
    elif kind < 0.9:
        tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(data.read_bytes()).items()}
        data.write_bytes(safetensors.torch.save(mutate_tensors(tensors, dice)))
    elif kind < 0.95:
        data.write_bytes(dice.choice([b"", b"\xff" * 8, (2**62).to_bytes(8, "little") + b"{}", dice.randbytes(300)]))
    else:
        state.write_bytes(dice.choice([b"", b"[" * 100_000, b"{}", b"null", b'{"a": 1', dice.randbytes(300)]))
    checksums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (state, data)}
    (generation / "manifest.json").write_text(json.dumps({"format": FORMAT, "sha256": checksums}))


@pytest.mark.parametrize("method", ["scr+ssd", "ocm", "ewc++", "lwf"])
def test_hostile_checkpoints_are_refused_or_harmless(method: str, tmp_path: Path) -> None:
    """A change that still makes a learner (another number of seconds, say) may load; the learner then works."""
    changes = {"scheme": None} if method in ("ewc++", "lwf") else {}
    feed(small_learner(method, boundary_gap=3, **changes), toy_stream(2, 4)).save(tmp_path / "honest")
    dice = random.Random(method)
    refused = 0
    total = amount(125, 1250)
    for _ in range(total):
        folder = tmp_path / "hostile"
        shutil.copytree(tmp_path / "honest", folder)
        rewrite(folder, dice)
        try:
            learner = Learner.load(folder)
        except CheckpointError:
            refused += 1
        else:
            if learner.image_shape is not None:
                blank = np.zeros((1, *learner.image_shape), dtype=np.uint8)
                try:
                    learner.observe(blank, learner.labels[:1] or [0])
                    learner.predict(blank)
                except (InputError, NonFiniteLossError):
                    refused += 1
        shutil.rmtree(folder)
    assert refused > total / 2
