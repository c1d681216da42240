"""jsonargparse with this project's manners: dashes in options, and unknown names that suggest the nearest."""

from __future__ import annotations

import re
from typing import Any, NoReturn

from jsonargparse import ArgumentParser

from engram.naming import suggest

_OPTION = re.compile(r"--[A-Za-z][\w.]*")


class Parser(ArgumentParser):
    """Options are written with dashes (underscores work too)."""

    def parse_args(self, args: Any = None, *rest: Any, **kwargs: Any) -> Any:
        return super().parse_args([_underscored(token) for token in args or []], *rest, **kwargs)

    def format_help(self, *args: Any, **kwargs: Any) -> str:
        return _OPTION.sub(lambda match: match[0].replace("_", "-"), super().format_help(*args, **kwargs))

    def format_usage(self) -> str:
        return f"usage: {self.prog} [options]\n"

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        unknown = re.search(r"nrecognized arguments: (--\S+)", message)
        if unknown:
            known = [option.replace("_", "-") for option in self._option_string_actions]
            name = unknown[1].split("=")[0].replace("_", "-")
            message = f"unknown option {name}{suggest(name, known) if len(known) < 8 else _nearest(name, known)}"
        self.exit(2, f"{self.prog}: {message}\nSee {self.prog} --help\n")
        raise AssertionError("exit does not return")


def _underscored(token: str) -> str:
    if not token.startswith("--"):
        return token
    name, equals, value = token.partition("=")
    return "--" + name[2:].replace("-", "_") + equals + value


def _nearest(name: str, known: list[str]) -> str:
    hint = suggest(name, known)
    return hint if "did you mean" in hint else ""
