"""The command line: parse, call, print. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import sys
from importlib import import_module

COMMANDS = {
    "run": "one learner over one stream (default: scr+ssd on the embedded stream)",
    "demo": "scr, scr+dynamic and scr+ssd on the embedded stream: a table and a picture, in minutes",
    "compare": "a table of finished runs: mean ± 95 % interval, paired differences",
    "paper": "a table or figure of the paper: smoke, small or full; on this machine or a Ray cluster",
    "report": "one self-contained HTML page about finished runs",
    "methods": "every method, its parts and its paper",
    "memory": "what the memory of a run holds, out of it and into a new learner",
    "data": "data sets: where they are, how to obtain them, whether they are whole",
    "bench": "step time, share of the machine's limit, summarizing overhead",
}

TRAINING = ("run", "demo", "paper", "bench")
"""Commands worth a start with huge pages."""


def main(argv: list[str] | None = None) -> int:
    """Entry point of the `engram` command; returns the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help())
        return 0
    if arguments[0] == "--version":
        from engram import __version__

        print(f"engram {__version__}")
        return 0
    if arguments[0] not in COMMANDS:
        from engram.naming import suggest

        print(f"engram: unknown command {arguments[0]!r}{suggest(arguments[0], list(COMMANDS))}", file=sys.stderr)
        return 2
    if argv is None and arguments[0] in TRAINING:
        from engram.cli.huge_pages import restart_with_huge_pages

        restart_with_huge_pages()
    return _execute(arguments[0], arguments[1:])


def _execute(command: str, arguments: list[str]) -> int:
    try:
        code: int = import_module(f"engram.cli.{command}_command").main(arguments)
    except (ValueError, OSError) as error:
        print(f"engram {command}: {error}", file=sys.stderr)
        return 1
    except RuntimeError as error:
        print(f"engram {command}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return code


def _help() -> str:
    lines = [f"  {name:<9} {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [
            "usage: engram COMMAND ...",
            "",
            "Keep learning from a stream seen once, with a memory of a few hundred kilobytes.",
            "",
            *lines,
            "",
            "engram COMMAND --help tells more.",
        ]
    )
