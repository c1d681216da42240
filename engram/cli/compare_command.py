"""`engram compare RUN...`: print a table of finished runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Literal

from engram.base.escaping import for_terminal
from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.cli.tables import print_comparison
from engram.report.formats import FORMATS, by_protocol
from engram.report.tables import compare, read_runs


def main(argv: list[str]) -> int:
    """Run `engram compare` and return the exit code."""
    parser = Parser(
        prog="engram compare",
        usage="engram compare RUN... [--format text|md|csv|latex|json]",
        description="Print the mean ± 95 % t-interval over seeds, and the paired difference to the first row on common "
        "seeds. RUN is a run folder, a folder of runs, or a JSON file of results.",
    )
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, folders of runs, or JSON files")
    parser.add_argument(
        "--format",
        type=Literal["text", "md", "csv", "latex", "json"],
        default="text",
        help="text for the terminal, md (Markdown), csv, latex (needs booktabs) or json",
    )
    parser.add_argument("--json", action="store_const", const="json", dest="format", help="the same as --format json")
    options = parser.parse_args(argv)
    rows = compare([run.result for run in read_runs(options.runs)])
    if options.format == "json":
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=1))
        return 0
    if options.format in FORMATS:
        print(for_terminal(FORMATS[options.format](rows), keep="\n"))
        return 0
    console = plain_console()
    for protocol, group in by_protocol(rows).items():
        console.print(protocol)
        print_comparison(group, console)
    return 0
