"""A hook of mkdocs: a page with the help of every command, and one with every method and its parts."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import os
from collections.abc import Iterable
from unittest import mock

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from engram.cli import COMMANDS
from engram.methods import MEMORIES, METHODS
from engram.paper.catalogue import METHODS_COMPARED

NESTED = {"memory": ("show", "export", "import"), "data": ("list", "info", "check", "get", "cache"), "run": ("er-ema",)}
"""Words after a command whose help says more; for runs the method, as each has settings of its own."""
WIDTH = "100"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, content in (("commands", commands()), ("methods", methods())):
        files.append(File.generated(config, f"{name}.md", content=content))
    return files


def commands() -> str:
    """Return the page of commands."""
    parts = [
        "# Every command",
        "This page is made from `--help`. `engram run METHOD --help` lists the settings of any method.",
    ]
    for command, summary in COMMANDS.items():
        parts += [f"## engram {command}", f"{summary[0].upper()}{summary[1:]}."]
        for words in [(command, word) for word in NESTED.get(command, ())] or [(command,)]:
            parts.append(f"```text\n{help_of(*words).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def help_of(command: str, *words: str) -> str:
    """Return what a command prints when it is asked for help."""
    printed = io.StringIO()
    with (
        mock.patch.dict(os.environ, COLUMNS=WIDTH),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
    ):
        importlib.import_module(f"engram.cli.{command}_command").main([*words, "--help"])
    return printed.getvalue()


def methods() -> str:
    """Return the page of methods."""
    others = [name for name in METHODS if name not in METHODS_COMPARED]
    parts = [
        "# Every method",
        "A method is a composition of parts. Its scheme is the part that trains the net in a step. "
        "[The method in detail](method.md) says where practice and papers differ.",
        "## Methods that the paper compares",
        table([name for name in METHODS_COMPARED if name in METHODS]),
        "## Other methods",
        table(others),
        "## Other memories",
        "A method that replays takes another memory with `+`, such as `er+ssd`.",
        "\n".join(["| memory | parts | paper |", "|---|---|---|", *map(memory_row, MEMORIES)]),
    ]
    return "\n\n".join(parts) + "\n"


def table(names: list[str]) -> str:
    """Return a table of methods."""
    rows = []
    for name in names:
        method = METHODS[name]
        does = first_sentence(method.parts()["scheme"])
        rows.append(f"| `{name}` | {does} | {', '.join(names_of(method.parts().values()))} | {method.paper} |")
    return "\n".join(["| method | what its scheme does | parts | from |", "|---|---|---|---|", *rows])


def memory_row(name: str) -> str:
    """Return the row of a memory."""
    brought = [part for part in MEMORIES[name].values() if inspect.isclass(part)]
    return f"| `+{name}` | {', '.join(names_of(brought))} | {MEMORIES[name]['paper']} |"


def names_of(parts: Iterable[type]) -> list[str]:
    """Return the names of classes."""
    return [f"`{part.__name__}`" for part in parts]


def first_sentence(part: type) -> str:
    """Return the first line of the documentation of a class."""
    return (inspect.getdoc(part) or "").splitlines()[0].replace("|", r"\|")
