"""One checker for every setting and option, driven by annotations.

A setting is a constructor argument with a default. An option is an entry of a `TypedDict`, most of them in
`engram.options`. Both declare type and range once, in the annotation; an option's annotation also holds its default and
its help text. Python callers, YAML files and the command line get the same message.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np

from engram.base.errors import InputError
from engram.base.naming import suggest, suggest_close

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Range:
    """Bounds of a number; None leaves a side open.

    Args:
        least: smallest value allowed.
        above: bound below all values allowed.
        most: largest value allowed.
        below: bound above all values allowed.
    """

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    def holds(self, value: float) -> bool:
        """Return whether a number lies within the bounds."""
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        words = {"of at least": self.least, "above": self.above, "of at most": self.most, "below": self.below}
        return " and ".join(f"{word} {bound:g}" for word, bound in words.items() if bound is not None)


@dataclass(frozen=True)
class Convert:
    """Turns what was given into the value that is kept, or raises an `InputError`.

    Args:
        function: takes the given value.
        words: what may be given, for messages.
    """

    function: Callable[[Any], Any]
    words: str


@dataclass(frozen=True)
class Default:
    """The value of an option that is not given."""

    value: Any


Count: TypeAlias = Annotated[int, Range(least=1)]
Natural: TypeAlias = Annotated[int, Range(least=0)]
Positive: TypeAlias = Annotated[float, Range(above=0)]
NonNegative: TypeAlias = Annotated[float, Range(least=0)]
Share: TypeAlias = Annotated[float, Range(least=0, most=1)]
Decay: TypeAlias = Annotated[float, Range(least=0, below=1)]


@dataclass(frozen=True)
class Setting:
    """A setting as its declaration gives it."""

    name: str
    annotation: Any
    default: Any
    help: str


def check_value(name: str, annotation: Any, value: Any) -> Any:
    """Return the value as its annotation asks for it, or raise an `InputError` that says what is allowed."""
    value = value.item() if isinstance(value, np.generic) else value
    accepted = _accepted(name, annotation, value)
    if accepted is _REFUSED:
        near = suggest_close(value, _choices(annotation)) if isinstance(value, str) else ""
        raise InputError(f"{name} is {value!r}: need {describe(annotation)}{near}")
    return accepted


def parse_value(name: str, annotation: Any, text: str) -> Any:
    """Return the value that a text, from the command line, stands for; like `check_value` otherwise."""
    for candidate in _readings(text):
        accepted = _accepted(name, annotation, candidate)
        if accepted is not _REFUSED:
            return accepted
    return check_value(name, annotation, _readings(text)[0])


def describe(annotation: Any) -> str:
    """Return in words what an annotation allows."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        converters = [each for each in arguments[1:] if isinstance(each, Convert)]
        if converters:
            return converters[0].words
        bounds = " and ".join(str(each) for each in arguments[1:] if isinstance(each, Range))
        return f"{describe(arguments[0])} {bounds}".strip()
    if _is_union(origin):
        return ", or ".join(describe(argument) for argument in arguments)
    if origin is Literal:
        *others, last = (repr(value) for value in arguments)
        return f"{', '.join(others)} or {last}" if others else last
    if origin is tuple:
        return f"{len(arguments)} values, each {describe(arguments[0])}"
    if dataclasses.is_dataclass(annotation):
        return f"settings by name: {', '.join(schema_of(annotation))}"
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a string", type(None): "none"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def schema_of(declaration: Any) -> dict[str, Setting]:
    """Return the settings of a class (its constructor's arguments with defaults) or the options of a TypedDict."""
    return _cached_schema(declaration)


@functools.cache
def _cached_schema(key: Hashable) -> dict[str, Setting]:
    declaration: Any = key
    hints = get_type_hints(declaration if is_typeddict(declaration) else declaration.__init__, include_extras=True)
    if is_typeddict(declaration):
        defaults = {name: _default_of(annotation) for name, annotation in hints.items()}
        help_texts = {name: _help_of(annotation) for name, annotation in hints.items()}
    else:
        help_texts = parse_argument_help(declaration.__doc__ or "")
        parameters = inspect.signature(declaration).parameters.values()
        defaults = {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}
    return {
        name: Setting(name, hints.get(name, Any), default, help_texts.get(name, ""))
        for name, default in defaults.items()
    }


def resolve(declaration: Any, given: Settings, owner: str = "") -> dict[str, Any]:
    """Return all settings of a declaration: the given values, checked, and the defaults of the others.

    Args:
        declaration: a class or a TypedDict.
        given: values by name; a name that is not declared is refused.
        owner: put before the names in messages, such as "scheme.".
    """
    schema = schema_of(declaration)
    for name in given:
        if name not in schema:
            raise InputError(f"{declaration.__name__} has no setting {owner + name!r}{suggest(name, list(schema))}")
    return {
        name: check_value(
            owner + name, setting.annotation, _over_default(given.get(name, setting.default), setting.default)
        )
        for name, setting in schema.items()
    }


def _over_default(value: Any, default: Any) -> Any:
    """Return a group of settings given by name with the others as the default has them; other values as they are."""
    if isinstance(value, Mapping) and dataclasses.is_dataclass(default) and not isinstance(default, type):
        return dataclasses.asdict(default) | dict(value)
    return value


def as_plain_data(settings: Settings) -> dict[str, Any]:
    """Return settings as numbers, strings, lists and dicts."""
    return {
        name: dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
        for name, value in settings.items()
    }


_REFUSED = object()


def _accepted(name: str, annotation: Any, value: Any) -> Any:
    """Return the value to keep, or `_REFUSED`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return value
    if origin is Annotated:
        for converter in (each for each in arguments[1:] if isinstance(each, Convert)):
            return _converted(name, converter, value)
        accepted = _accepted(name, arguments[0], value)
        ranges = [each for each in arguments[1:] if isinstance(each, Range)]
        number = isinstance(accepted, int | float)
        return accepted if not number or all(each.holds(accepted) for each in ranges) else _REFUSED
    if _is_union(origin):
        options = (_accepted(name, argument, value) for argument in sorted(arguments, key=_is_converted))
        return next((accepted for accepted in options if accepted is not _REFUSED), _REFUSED)
    if origin is Literal:
        return next((choice for choice in arguments if choice == value and type(choice) is type(value)), _REFUSED)
    if origin is tuple:
        if not isinstance(value, list | tuple) or len(value) != len(arguments):
            return _REFUSED
        items = tuple(_accepted(name, each, item) for each, item in zip(arguments, value, strict=True))
        return _REFUSED if _REFUSED in items else items
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return _accepted_group(name, annotation, value)
    return _accepted_plain(annotation, value)


def _converted(name: str, converter: Convert, value: Any) -> Any:
    try:
        return converter.function(value)
    except InputError as error:
        raise error if str(error).startswith(name) else InputError(f"{name}: {error}") from error
    except (TypeError, ValueError):
        return _REFUSED


def _accepted_plain(kind: Any, value: Any) -> Any:
    if kind is type(None) or kind is None:
        return None if value is None else _REFUSED
    if kind is bool:
        return value if isinstance(value, bool) else _REFUSED
    if kind is int:
        return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else _REFUSED
    if kind is float:
        number = isinstance(value, Real) and not isinstance(value, bool)
        return value if number and math.isfinite(value) else _REFUSED
    return value if isinstance(value, kind) else _REFUSED


def _accepted_group(name: str, group: type, value: Any) -> Any:
    if isinstance(value, group):
        value = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}  # type: ignore[arg-type]
    return group(**resolve(group, value, f"{name}.")) if isinstance(value, Mapping) else _REFUSED


def _is_union(origin: Any) -> bool:
    return origin is Union or origin is types.UnionType


def _is_converted(annotation: Any) -> bool:
    return any(isinstance(each, Convert) for each in get_args(annotation))


def _choices(annotation: Any) -> list[str]:
    """Return all words that an annotation lists."""
    if get_origin(annotation) is Literal:
        return [value for value in get_args(annotation) if isinstance(value, str)]
    if get_origin(annotation) is Annotated:
        return _choices(get_args(annotation)[0])
    return [choice for each in get_args(annotation) for choice in _choices(each)]


def _readings(text: str) -> list[Any]:
    """Return the values that a text may stand for, the most specific first."""
    found: list[Any] = []
    if text.lower() in ("none", "null"):
        found.append(None)
    if text.lower() in ("true", "false"):
        found.append(text.lower() == "true")
    for kind in (int, float):
        try:
            found.append(kind(text))
        except ValueError:
            continue
    if "," in text:
        found.append([(_readings(item.strip()) or [item])[0] for item in text.strip("[]()").split(",")])
    return [*found, text]


def _default_of(annotation: Any) -> Any:
    marks = [each for each in get_args(annotation) if isinstance(each, Default)]
    if not marks:
        raise TypeError(f"an option needs a Default: {annotation}")
    return marks[0].value


def _help_of(annotation: Any) -> str:
    return next((each for each in get_args(annotation)[1:] if isinstance(each, str)), "")


def parse_argument_help(docstring: str) -> dict[str, str]:
    """Return the explanations under "Args:" of a docstring, by name."""
    lines = inspect.cleandoc(docstring).splitlines()
    starts = [index for index, line in enumerate(lines) if line.strip() == "Args:"]
    found: dict[str, str] = {}
    name = ""
    for line in lines[starts[0] + 1 :] if starts else []:
        depth = len(line) - len(line.lstrip())
        if line.strip() and depth < 4:
            break
        if depth == 4 and ":" in line:
            name, _, text = line.strip().partition(":")
            found[name] = text.strip()
        elif line.strip() and name:
            found[name] += " " + line.strip()
    return found
