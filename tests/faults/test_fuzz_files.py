"""Altered results, configurations, events and exported memories by the thousand: only documented refusals."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import yaml

from engram import ExportedMemory, InputError
from engram.cli.run_command import build_parser, to_config
from engram.experiment.config import RunConfig, config_of, config_text
from engram.experiment.folder import RunFolder
from engram.report.page import page
from engram.report.tables import compare, read_runs
from tests.faults.soak import amount
from tests.faults.test_fuzz import mutate, mutate_tensors
from tests.faults.test_injection import RESULT, harmless
from tests.helpers import feed, small_learner, toy_stream

ODD_BYTES = [b"\x00", b"\xff\xfe", b"[" * 2000, b"{", b"\n", b"9" * 5000]
ODD_FACTS = ["", "-1", "9" * 30, "9" * 5000, "[]", "{}", "x", "[" * 5000, json.dumps(["a"]), json.dumps([2**70] * 8)]


def damaged(content: bytes, dice: random.Random) -> bytes:
    """Return bytes with some cut off, changed, doubled or put in."""
    at = dice.randrange(len(content))
    return dice.choice(
        [
            lambda: content[:at],
            lambda: content[:at] + dice.randbytes(3) + content[at + 3 :],
            lambda: content[:at] + content[at // 2 : at] + content[at:],
            lambda: content[:at] + dice.choice(ODD_BYTES) + content[at:],
        ]
    )()


def altered(tree: Any, dump: Any, dice: random.Random) -> bytes:
    """Return the text of a tree with values replaced, or its text damaged."""
    for _ in range(dice.randint(1, 3)):
        tree = mutate(tree, dice)
    text: bytes = dump(tree).encode()
    return damaged(text, dice) if text and dice.random() < 0.3 else text


def test_altered_results_are_refused_or_shown(tmp_path: Path) -> None:
    dice = random.Random(1)
    refused = 0
    total = amount(400, 4000)
    for _ in range(total):
        (tmp_path / "result.json").write_bytes(altered(copy.deepcopy(RESULT), json.dumps, dice))
        events = {"event": "round", "batch": 3, "gradient": 0.5}
        (tmp_path / "events.jsonl").write_bytes(altered(events, json.dumps, dice))
        try:
            compare([run.result for run in read_runs([tmp_path])])
            assert harmless(page(tmp_path))
        except InputError:
            refused += 1
    assert total / 10 < refused < total


def test_altered_configurations_are_refused_or_run(tmp_path: Path) -> None:
    dice = random.Random(2)
    config = RunConfig("scr+ssd", memory_size=5)
    content = yaml.safe_load(config_text(config))
    refused = 0
    total = amount(150, 3000)
    for _ in range(total):
        (tmp_path / "config.yaml").write_bytes(altered(copy.deepcopy(content), yaml.safe_dump, dice))
        for read in (
            lambda: config_of(tmp_path),
            lambda: RunFolder(tmp_path).open(config, ["a"]),
            lambda: to_config(build_parser("scr+ssd").parse_args(["--config", str(tmp_path / "config.yaml")])),
        ):
            try:
                read()
            except InputError:
                refused += 1
    assert total / 10 < refused < 3 * total


@pytest.mark.parametrize("codec", ["float32", "webp(50)"])
def test_altered_exported_memories_are_refused_or_adopted(codec: str, tmp_path: Path) -> None:
    dice = random.Random(codec)
    learner = feed(small_learner("er", memory_size=None, memory_bytes=9000, codec=codec), toy_stream(2, 4))
    learner.export_memory().write(tmp_path / "m")
    path = tmp_path / "m" / "memory.safetensors"
    honest = path.read_bytes()
    tensors = safetensors.torch.load(honest)
    with safetensors.safe_open(path, "pt") as file:
        facts = dict(file.metadata())
    refused = 0
    total = amount(150, 1500)
    for number in range(total):
        kind = dice.random()
        changed = dict(facts)
        if kind < 0.3:
            path.write_bytes(damaged(honest, dice))
        elif kind < 0.7:
            path.write_bytes(safetensors.torch.save(mutate_tensors(tensors, dice), changed))
        else:
            name = dice.choice(list(facts))
            changed[name] = dice.choice([*ODD_FACTS, facts[name][:-1]])
            path.write_bytes(safetensors.torch.save(tensors, changed))
        try:
            exported = ExportedMemory.read(tmp_path / "m")
            if number % 5 == 0:
                small_learner("er", memory_size=50).adopt(exported)
        except InputError:
            refused += 1
    assert total / 3 < refused < total
