"""`engram report PATH`: write one HTML page about finished runs."""

from __future__ import annotations

from pathlib import Path

from engram.base.errors import InputError
from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.persistence.files import replace_file
from engram.report.amounts import number, with_unit
from engram.report.page import page


def main(argv: list[str]) -> int:
    """Run `engram report` and return the exit code."""
    parser = Parser(
        prog="engram report",
        usage="engram report PATH [--out FILE]",
        description="Write one self-contained HTML page about finished runs: tables, curves, costs and the memory "
        "over time. PATH is a run folder, a folder of runs (such as of engram paper), or a JSON file of results.",
    )
    parser.add_argument("path", type=Path, help="run folder, folder of runs, or JSON file of results")
    parser.add_argument(
        "--out", type=Path | None, default=None, help="file to write (default: report.html in PATH, or beside a file)"
    )
    options = parser.parse_args(argv)
    if not options.path.exists():
        raise InputError(f"{options.path} does not exist: give a run folder, a folder of runs or a JSON file")
    default = options.path / "report.html" if options.path.is_dir() else options.path.with_suffix(".html")
    out: Path = options.out or default
    content = page(options.path).encode()
    replace_file(out, content)
    plain_console().print(f"{out} ({with_unit(number(len(content)), 'B')})", soft_wrap=True)
    return 0
