"""The command line. Each command is a module; it is imported only when the command is called."""

from __future__ import annotations

import signal
import sys
from importlib import import_module

from engram.cli.console import print_error, show_warnings
from engram.cli.plugins import take_plugins

COMMANDS = {
    "learn": "teach a learner, new or saved, from a folder of photos",
    "predict": "name the classes of images with a saved learner",
    "evaluate": "test a saved learner on a folder of photos",
    "run": "run one learner over one stream (without names: er-ema on digits)",
    "demo": "learn with and without summaries: a table and a picture in minutes",
    "compare": "print a table of finished runs: text, Markdown, CSV or LaTeX",
    "paper": "run a table or figure of the paper, here or on a Ray cluster",
    "report": "write one self-contained HTML page about finished runs",
    "recommend": "say which method and settings suit a limit in bytes",
    "methods": "list the methods with their parts and papers",
    "memory": "show the memory of a run, export it, or import it into a learner",
    "serve": "serve learners by HTTP, with a page for the browser",
    "data": "list, describe, check and download data sets",
    "bench": "measure how fast this machine learns, against its own limit",
}

TRAINING = ("learn", "run", "demo", "paper", "bench", "serve")
"""Commands that are restarted with huge pages."""


def main(argv: list[str] | None = None) -> int:
    """Run the `engram` command and return its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help())
        return 0
    if arguments[0] == "--version":
        from engram import __version__

        print(f"engram {__version__}")
        return 0
    if arguments[0] not in COMMANDS:
        from engram.base.naming import suggest

        print_error(f"engram: unknown command {arguments[0]!r}{suggest(arguments[0], list(COMMANDS))}")
        return 2
    if argv is None and arguments[0] in TRAINING and "--dry-run" not in arguments:
        from engram.cli.huge_pages import restart_with_huge_pages

        restart_with_huge_pages()
    show_warnings()
    return _execute(arguments[0], arguments[1:])


def _execute(command: str, arguments: list[str]) -> int:
    try:
        arguments = take_plugins(arguments)
        code: int = import_module(f"engram.cli.{command}_command").main(arguments)
    except (ValueError, OSError) as error:
        print_error(f"engram {command}: {error}")
        return 1
    except MemoryError as error:
        print_error(f"engram {command}: out of memory ({error or 'no more was to be had'}): ask for less, or free some")
        return 1
    except RuntimeError as error:
        print_error(f"engram {command}: {type(error).__name__}: {error}")
        return 1
    except KeyboardInterrupt:
        print_error(f"engram {command}: interrupted")
        return 128 + signal.SIGINT
    return code


def _help() -> str:
    lines = [f"  {name:<10} {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [
            "usage: engram COMMAND ...",
            "",
            "Keep learning from a stream seen once, with a memory of some hundred kilobytes.",
            "",
            *lines,
            "",
            "See engram COMMAND --help for the options of a command.",
        ]
    )
