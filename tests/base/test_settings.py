"""The checker of settings: what annotations allow, what is refused and how, from Python and from the command line."""

import dataclasses
import math
import re
from typing import Annotated, Any, Literal, get_args, get_origin

import numpy as np
import pytest

from engram import InputError, Learner
from engram.base.interfaces import StepPart
from engram.base.settings import Count, Positive, Range, check_value, describe, parse_value, resolve, schema_of
from engram.cli.parser import flat_settings
from engram.methods import MEMORIES, METHODS, configurable, find_method

ALL_PARTS: dict[str, tuple[str, str, Any]] = {
    f"{role}: {part.__name__}": (method, role, part)
    for method in [*METHODS, *(f"er+{memory}" for memory in MEMORIES)]
    for role, part in configurable(find_method(method)).items()
}


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [
        (int, [3, np.int64(3)], [3.0, "3", True, None]),
        (float, [3, 3.5, np.float32(0.5)], ["3", True, math.nan, math.inf]),
        (bool, [True, np.bool_(False)], [1, "true"]),
        (str, ["x"], [1]),
        (Count, [1, 5], [0, -1, 1.0]),
        (Positive, [1e-9], [0, -1]),
        (Annotated[float, Range(least=0, below=1)], [0, 0.99], [1, -0.1]),
        (int | None, [None, 3], ["none", 3.5]),
        (Literal["a", "b"], ["a"], ["c", 1, None]),
        (int | Literal["auto"], [3, "auto"], ["car", 2.5]),
        (tuple[float, float], [(1.0, 2.0), [1, 2]], [(1.0,), 3, (1.0, "x")]),
    ],
)
def test_annotations_say_what_is_allowed(annotation: Any, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        check_value("it", annotation, value)
    for value in bad:
        with pytest.raises(InputError, match=r"^it is "):
            check_value("it", annotation, value)


def test_numpy_numbers_become_numbers_of_python() -> None:
    assert type(check_value("it", Count, np.int64(3))) is int
    assert type(check_value("it", float, np.float32(0.5))) is float


def test_messages_say_what_was_given_what_is_allowed_and_the_nearest_name() -> None:
    passes = schema_of(METHODS["er"].scheme)["passes"].annotation
    with pytest.raises(InputError) as caught:
        check_value("scheme.passes", passes, "jiont")
    assert str(caught.value) == (
        "scheme.passes is 'jiont': need 'separate', 'joint', 'joint-mean' or 'thrice'; did you mean 'joint'?"
    )
    assert describe(Count | None) == "a whole number of at least 1, or none"


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (int, "3", 3),
        (float, "1e-3", 1e-3),
        (int | None, "none", None),
        (bool, "true", True),
        (str, "3", "3"),
        (tuple[float, float], "0.2,1", (0.2, 1)),
        (int | Literal["auto"], "auto", "auto"),
        (Literal["a"] | None, "null", None),
    ],
)
def test_text_is_read_by_the_annotation(annotation: Any, text: str, value: Any) -> None:
    assert parse_value("it", annotation, text) == value


def test_python_and_the_command_line_say_the_same() -> None:
    for text, value in (("zero", "zero"), ("0", 0), ("2.5", 2.5)):
        with pytest.raises(InputError) as from_text:
            parse_value("memory_size", Count | None, text)
        with pytest.raises(InputError) as from_python:
            Learner(memory_size=value)  # type: ignore[arg-type]
        assert str(from_text.value) == str(from_python.value)


def wrong_values(annotation: Any) -> list[Any]:
    """Return values of a wrong type, a wrong literal and, where there is a range, out of it."""
    wrong: list[Any] = [object()]
    if get_origin(annotation) is Literal or any(get_origin(each) is Literal for each in get_args(annotation)):
        wrong.append("no such word")
    inner = [each for argument in get_args(annotation) for each in get_args(argument)]
    for bounds in [*get_args(annotation), *inner]:
        if isinstance(bounds, Range):
            wrong += [bounds.least - 1] if bounds.least is not None else []
            wrong += [bounds.above] if bounds.above is not None else []
            wrong += [bounds.most + 1] if bounds.most is not None else []
            wrong += [bounds.below] if bounds.below is not None else []
    return wrong


@pytest.mark.parametrize("name", ALL_PARTS)
def test_every_setting_of_every_part_refuses_what_is_wrong(name: str) -> None:
    method, role, part = ALL_PARTS[name]
    for full_name, setting in flat_settings(part, f"{role}."):
        for value in wrong_values(setting.annotation):
            given: Any = value
            for inner in reversed(full_name.split(".")[1:]):
                given = {inner: given}
            with pytest.raises(InputError, match=full_name.replace(".", r"\.")):
                Learner(method, **{role: given})


@pytest.mark.parametrize("name", [name for name, (_, _, part) in ALL_PARTS.items() if issubclass(part, StepPart)])
def test_a_part_made_directly_refuses_the_same(name: str) -> None:
    part = ALL_PARTS[name][2]
    for setting in schema_of(part).values():
        if not dataclasses.is_dataclass(setting.default):
            for value in wrong_values(setting.annotation):
                with pytest.raises(InputError, match=f"^{setting.name}"):
                    part(**{setting.name: value})


@pytest.mark.parametrize("name", ALL_PARTS)
def test_every_number_has_a_range_and_every_setting_its_help(name: str) -> None:
    part = ALL_PARTS[name][2]
    for full_name, setting in flat_settings(part):
        if re.search(r"\b(int|float)\b", str(setting.annotation)):
            assert "Range" in str(setting.annotation), full_name
        assert len(setting.help.split()) >= 2, f"{full_name} is not explained"


def test_a_group_given_in_part_keeps_the_rest_of_the_parts_own_default() -> None:
    ocm = METHODS["ocm"].scheme
    changed = resolve(ocm, {"augment": {"flip": 0.25}})["augment"]
    assert (changed.flip, changed.crop_scale, changed.crop) == (0.25, (0.3, 1.0), "aligned")


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"has no setting 'scheme\.replya': did you mean 'replay'"):
        Learner("er", scheme={"replya": 3})
    with pytest.raises(InputError, match="did you mean 'memory_size'"):
        Learner("er", memory_siz=3)  # type: ignore[call-arg]
