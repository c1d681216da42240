"""Every `engram` command in README and docs exists, and has the options that are shown."""

import contextlib
import functools
import importlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import generate
import pytest

from engram.cli import COMMANDS
from engram.methods import find_method

OWN_METHOD = "mine"
"""The method of a plugin that a page tells how to write."""
NESTED = ("memory", "data")
"""Commands that have commands of their own."""


def commands_in(text: str) -> Iterator[list[str]]:
    """Yield the words of each command in the blocks and the inline code of a page; comments beside them come along."""
    blocks = re.findall(r"```(?:sh)?\n(.*?)```", text, flags=re.DOTALL)
    inline = re.findall(r"`(engram [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines() + [" ".join(code.split()) for code in inline]
    for line in lines:
        if line.startswith("engram "):
            yield re.split(r"\s{3,}", line.removeprefix("engram ").strip())[0].split()


@functools.cache
def help_of(command: str, *names: str) -> str:
    """Return the help of a command."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit):
        importlib.import_module(f"engram.cli.{command}_command").main([*names, "--help"])
    return printed.getvalue()


@pytest.mark.parametrize("path", generate.documents(), ids=lambda path: path.name)
def test_commands_and_their_options_exist(path: Path) -> None:
    for command, *words in commands_in(path.read_text(encoding="utf-8")):
        if command.startswith("--"):
            continue
        assert command in COMMANDS or command.isupper(), f"engram {command}"
        options = {word.split("=")[0] for word in words if re.match(r"--[a-z]", word)}
        names: list[str] = words[:1] if command in NESTED else []
        if command == "run" and words and not words[0].startswith("-"):
            plain = words[0].isupper() or words[0] in ("...", OWN_METHOD)
            assert plain or find_method(words[0])
            names = ["scr+ssd" if plain else words[0]]
        missing = {option for option in options if option not in help_of(command, *names)}
        assert not missing, f"engram {command} {' '.join(words)}: no {', '.join(sorted(missing))}"


def test_a_line_is_read_as_a_command_and_a_comment() -> None:
    block = "```\nengram run er digits --seeds 3     three seeds\nengram run er \\\n    --seed 0\n```\n"
    page = f"{block}and `engram bench\n--json`"
    assert list(commands_in(page)) == [
        ["run", "er", "digits", "--seeds", "3"],
        ["run", "er"],
        ["bench", "--json"],
    ]
