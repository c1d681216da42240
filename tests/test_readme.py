"""What the README shows works as shown."""

import re
from pathlib import Path

import pytest

from engram.cli import COMMANDS
from engram.cli.run_command import build_parser

README = (Path(__file__).parents[1] / "README.md").read_text()


@pytest.mark.parametrize("number", range(2))
def test_python_examples_run(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 2
    exec(compile(blocks[number], f"README block {number}", "exec"), {})


def test_commands_shown_exist_and_parse() -> None:
    block = README.split("## On the command line")[1].split("```")[1].replace("\\\n   ", "")
    shown = re.findall(r"^engram (\w+) (.*?)(?:  |$)", block, flags=re.MULTILINE)
    assert len(shown) == 5
    assert {command for command, _ in shown} <= set(COMMANDS)
    runs = [arguments.split() for command, arguments in shown if command == "run"]
    assert len(runs) == 2
    for method, dataset, *options in runs:
        parsed = build_parser(method).parse_args([f"--dataset={dataset}", *options])
        assert parsed.dataset == dataset


def test_it_starts_with_the_two_commands() -> None:
    _, _, fence, *commands = README.splitlines()[:5]
    assert fence == "```"
    assert [command.split("#")[0].strip() for command in commands] == ["make run", "make test"]
