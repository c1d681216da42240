"""`engram methods`: list every method with its parts and its paper."""

from __future__ import annotations

import json
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from engram.base.settings import as_plain_data
from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.methods import find_method, method_settings, names


def main(argv: list[str]) -> int:
    """Run `engram methods` and return the exit code."""
    parser = Parser(
        prog="engram methods",
        usage="engram methods [--json]",
        description="List every method with its parts and its paper.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with all settings and their defaults")
    options = parser.parse_args(argv)
    if options.json:
        print(json.dumps({name: describe(name) for name in names()}, indent=1))
        return 0
    table = Table("method", "parts", "paper", box=SIMPLE, pad_edge=False)
    for name in names():
        method = find_method(name)
        table.add_row(name, " · ".join(part.__name__ for part in method.parts().values()), method.paper)
    plain_console().print(table)
    return 0


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
