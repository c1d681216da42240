"""`engram methods`: list the methods with their parts and papers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from engram.base.settings import as_plain_data
from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.cli.tables import new_table
from engram.methods import MEMORIES, METHODS, find_method, method_settings, names
from engram.paper.catalogue import METHODS_COMPARED


def main(argv: list[str]) -> int:
    """Run `engram methods` and return the exit code."""
    parser = Parser(
        prog="engram methods",
        usage="engram methods [--all] [--json]",
        description="List the methods that the paper compares, then the others, each with its parts and its paper.",
    )
    parser.add_argument("--all", action="store_true", help="also list every combination of a method with a memory")
    parser.add_argument("--json", action="store_true", help="print JSON: all methods, settings and their defaults")
    options = parser.parse_args(argv)
    if options.json:
        print(json.dumps({name: describe(name) for name in names()}, indent=1))
        return 0
    console = plain_console()
    others = [name for name in METHODS if name not in METHODS_COMPARED]
    combined = [name for name in names() if name not in METHODS and name not in METHODS_COMPARED]
    shown = {"Methods that the paper compares": METHODS_COMPARED, "Other methods": others}
    if options.all:
        shown["Methods with another memory"] = combined
    for title, listed in shown.items():
        console.print(f"{title}\n")
        console.print(_table(listed))
        console.print()
    if not options.all:
        memories = ", ".join(f"+{name}" for name in MEMORIES)
        console.print(
            f"A method that replays takes another memory with {memories}: er+ssd, for example. "
            f"engram methods --all lists these {len(combined)} too."
        )
    return 0


def _table(listed: Sequence[str]) -> Table:
    table = new_table(("method", "parts", "paper"))
    for name in listed:
        method = find_method(name)
        table.add_row(name, " · ".join(part.__name__ for part in method.parts().values()), method.paper)
    return table


def describe(name: str) -> dict[str, Any]:
    """Return a method's paper, parts and default settings as plain data."""
    method = find_method(name)
    return {
        "paper": method.paper,
        "repeats": method.repeats,
        "stream": method.stream,
        "parts": {role: part.__name__ for role, part in method.parts().items()},
        "settings": {role: as_plain_data(own) for role, own in method_settings(method, {}).items()},
    }
