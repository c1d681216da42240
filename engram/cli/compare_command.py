"""`engram compare RUN...`: print a table of finished runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.cli.tables import print_comparison
from engram.report.tables import Row, compare, describe_protocol, read_runs


def main(argv: list[str]) -> int:
    """Run `engram compare` and return the exit code."""
    parser = Parser(
        prog="engram compare",
        usage="engram compare RUN... [--json]",
        description="Print the mean ± 95 % t-interval over seeds, and the paired difference to the first row on common "
        "seeds. RUN is a run folder, a folder of runs, or a JSON file of results.",
    )
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, folders of runs, or JSON files")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(argv)
    rows = compare([run.result for run in read_runs(options.runs)])
    if options.json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=1))
        return 0
    console = plain_console()
    by_protocol: dict[str, list[Row]] = {}
    for row in rows:
        by_protocol.setdefault(describe_protocol(row.protocol), []).append(row)
    for protocol, group in by_protocol.items():
        console.print(protocol)
        print_comparison(group, console)
    return 0
