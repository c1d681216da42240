"""`engram compare RUN...`: a table of finished runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.cli.tables import print_comparison
from engram.report.tables import PROTOCOL, Row, compare, read_runs


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="engram compare",
        usage="engram compare RUN... [--json]",
        description="Mean ± 95 % t-interval over seeds, and the paired difference to the first method on common seeds. "
        "RUN is a run folder, a folder of runs, or a JSON file of results.",
    )
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, folders of runs, or JSON files")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    rows = compare([run.result for run in read_runs(options.runs)])
    if options.json:
        named = [dataclasses.asdict(row) | {"protocol": dict(zip(PROTOCOL, row.protocol, strict=True))} for row in rows]
        print(json.dumps(named, indent=1))
        return 0
    console = plain_console()
    by_protocol: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        by_protocol.setdefault(row.protocol, []).append(row)
    for protocol, group in by_protocol.items():
        facts = zip(PROTOCOL, protocol, strict=True)
        console.print(", ".join(f"{name} {value}" for name, value in facts if value is not None))
        print_comparison(group, console)
    return 0
