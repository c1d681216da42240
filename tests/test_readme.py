"""What the README shows works as shown."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engram import Learner
from engram.cli import COMMANDS
from engram.cli.run_command import build_parser
from engram.streams import class_incremental, load_dataset
from tests.helpers import toy_images
from tests.streams.imagefiles import picture, write

README = (Path(__file__).parents[1] / "README.md").read_text()


def camera() -> Iterator[tuple[np.ndarray, list[str]]]:
    for index in range(8):
        yield toy_images([0, 1], index), ["door", "window"]


@pytest.mark.parametrize("number", range(8))
def test_python_examples_run(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks 4 to 6 are about the reader's own data, which is made here. What block 0 prints is shown."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "photos", {f"{each}/{i}.jpg": picture(i, 40) for each in ("cat", "dog", "owl") for i in range(6)})
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 8
    own = {"x": toy_images([0, 1, 2] * 10, 0), "y": [0, 1, 2] * 10, "camera": camera}
    names: dict[str, Any] = {}
    if number in (4, 5, 6):
        names = own | {"Learner": Learner, "class_incremental": class_incremental, "load_dataset": load_dataset}
    exec(compile(blocks[number], f"README block {number}", "exec"), names)
    if number == 0:
        assert_like_shown(capsys.readouterr().out)
    if number == 1:
        assert names["learner"].rounds > 0
    if number == 2:
        assert names["memory"].rounds > 0
    if number in (4, 5, 6):
        assert len(names["learner"].labels) == [3, 3, 2][number - 4]
        assert blocks[number].count("\n") == 3


def assert_like_shown(printed: str) -> None:
    """The figures are those of the README to a few points, and the methods are in the same order at the end."""
    found, shown = accuracies(printed), accuracies(README.split("each of the five pairs:")[1].split("```")[1])
    assert found.keys() == shown.keys() == {"fine-tune", "er", "er-ema"}
    for method in found:
        assert found[method] == pytest.approx(shown[method], abs=15)
    assert found["fine-tune"][-1] < found["er"][-1] < found["er-ema"][-1]


def accuracies(text: str) -> dict[str, list[int]]:
    """Return what each line says: a method, and a list of figures."""
    lines = re.findall(r"^(\S+) \[(.*)\]$", text, flags=re.MULTILINE)
    return {method: [int(value) for value in values.split(", ")] for method, values in lines}


def test_commands_shown_exist_and_parse() -> None:
    block = README.split("## On the command line")[1].split("```")[1].replace("\\\n   ", "")
    shown = re.findall(r"^engram (\w+) (.*?)(?:  |$)", block, flags=re.MULTILINE)
    assert len(shown) == 11
    assert {command for command, _ in shown} <= set(COMMANDS)
    runs = [arguments.split() for command, arguments in shown if command == "run"]
    assert len(runs) == 2
    for method, dataset, *options in runs:
        parsed = build_parser(method).parse_args([f"--dataset={dataset}", *options])
        assert parsed.dataset == dataset


def test_it_starts_with_the_two_commands() -> None:
    sentence, picture_line, block = (part.strip() for part in README.split("\n\n")[1:4])
    assert sentence.startswith("engram lets a model keep learning")
    assert picture_line.startswith("![")
    commands = block.strip("`").strip().splitlines()
    assert [command.split("#")[0].strip() for command in commands] == ["make run", "make test"]
