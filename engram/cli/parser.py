"""argparse with annotations as types: the command line gives the same messages as Python does.

Options are written with dashes; underscores work too. Unknown options suggest the nearest one.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn, get_args, is_typeddict

from engram.base.errors import InputError
from engram.base.escaping import for_terminal
from engram.base.naming import suggest, suggest_close
from engram.base.settings import Setting, describe, parse_value, schema_of

PLUGINS = "Every command also takes --plugin MODULE, which adds methods, data sets and other parts of your own."
"""What the help of every command says in the end; `engram.cli.plugins` takes the option."""


class Parser(argparse.ArgumentParser):
    """A parser whose arguments have annotations as types."""

    def __init__(self, prog: str, usage: str, description: str) -> None:
        super().__init__(prog=prog, usage=usage, description=description, epilog=PLUGINS, allow_abbrev=False)
        self.explain_unknown: Callable[[str], str | None] = lambda name: None
        """Returns why an unknown option is none here, if there is more to say than its nearest name."""

    def add_argument(self, *names: str, type: Any = None, **facts: Any) -> argparse.Action:
        """Add an argument. `type` is an annotation, such as `int | None` or a Literal."""
        return super().add_argument(*map(_dashed, names), **_argparse_facts(names[-1].lstrip("-"), type, facts))

    def add_options(self, title: str, declaration: Any) -> None:
        """Add every option of a TypedDict, or every setting of a class; those not given are left out of the result.

        Args:
            title: heading in the help. For a class it is also the prefix of the settings' names, such as "scheme".
            declaration: the TypedDict or class.
        """
        group = self.add_argument_group(title if is_typeddict(declaration) else f"{title}: {declaration.__name__}")
        prefix = "" if is_typeddict(declaration) else f"{title}."
        for name, setting in flat_settings(declaration, prefix):
            bare = setting.annotation is bool or bool in get_args(setting.annotation)[:1]
            facts = {"nargs": "?", "const": True} if bare else {}
            group.add_argument(
                f"--{name.replace('_', '-')}",
                dest=name,
                default=argparse.SUPPRESS,
                metavar=name.rpartition(".")[2].upper(),
                type=_reader(name, setting.annotation),
                help=f"{setting.help} ({describe(setting.annotation)}; default: {_shown(setting.default)})".replace(
                    "%", "%%"
                ),
                **facts,  # type: ignore[arg-type]
            )

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        return super().parse_args([_dashed(token) for token in args or []], namespace)

    def error(self, message: str) -> NoReturn:
        message = re.sub(r"^argument \S+: ", "", message)
        unknown = re.search(r"nrecognized arguments: (--\S+)", message)
        if unknown:
            known = [option for option in self._option_string_actions if option.startswith("--")]
            name = unknown[1].split("=")[0]
            near = suggest(name, known) if len(known) < 8 else suggest_close(name, known).replace(";", ":", 1)
            message = self.explain_unknown(name) or f"unknown option {name}{near}"
        self.exit(2, for_terminal(f"{self.prog}: {message}\nSee {self.prog} --help\n"))


def flat_settings(declaration: Any, prefix: str = "") -> Iterable[tuple[str, Setting]]:
    """Yield the settings of a declaration by their full names; those of groups come one by one."""
    for name, setting in schema_of(declaration).items():
        if dataclasses.is_dataclass(setting.default) and not isinstance(setting.default, type):
            for inner, own in flat_settings(type(setting.default), f"{prefix}{name}."):
                default = getattr(setting.default, own.name) if "." not in inner.removeprefix(f"{prefix}{name}.") else 0
                yield inner, dataclasses.replace(own, default=default)
        else:
            yield prefix + name, setting


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Return values by dotted names as dicts within dicts.

    >>> nested({"scheme.replay": 5, "scheme.augment.flip": 0.1, "seed": 3})
    {'scheme': {'replay': 5, 'augment': {'flip': 0.1}}, 'seed': 3}
    """
    found: dict[str, Any] = {}
    for name, value in flat.items():
        *groups, last = name.split(".")
        place = found
        for group in groups:
            place = place.setdefault(group, {})
        place[last] = value
    return found


def _argparse_facts(name: str, annotation: Any, facts: dict[str, Any]) -> dict[str, Any]:
    if annotation is None:
        return facts
    return facts | {"type": _reader(name, annotation)}


def _reader(name: str, annotation: Any) -> Callable[[str], Any]:
    """Return a function that turns a text into a value of this annotation."""

    def read(text: str) -> Any:
        if annotation is Path or Path in get_args(annotation):
            return Path(text).expanduser()
        try:
            return parse_value(name, annotation, text)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read


def _dashed(token: str) -> str:
    if not token.startswith("--"):
        return token
    name, equals, value = token.partition("=")
    return name.replace("_", "-") + equals + value


def _shown(default: Any) -> str:
    return "none" if default is None else str(default)
