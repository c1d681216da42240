"""`engram methods`: every method, its parts and its paper."""

from __future__ import annotations

import json
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.methods import find, method_settings, names, plain


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="engram methods",
        usage="engram methods [--json]",
        description="Every method, its parts and its paper.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with every setting and its default")
    options = parser.parse_args(argv)
    if options.json:
        print(json.dumps({name: describe(name) for name in names()}, indent=1))
        return 0
    table = Table("method", "parts", "paper", box=SIMPLE, pad_edge=False)
    for name in names():
        method = find(name)
        table.add_row(name, " · ".join(part.__name__ for part in method.parts().values()), method.paper)
    plain_console().print(table)
    return 0


def describe(name: str) -> dict[str, Any]:
    method = find(name)
    return {
        "paper": method.paper,
        "repeats": method.repeats,
        "stream": method.stream,
        "parts": {room: part.__name__ for room, part in method.parts().items()},
        "settings": {room: plain(own) for room, own in method_settings(method, {}).items()},
    }
