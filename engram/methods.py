"""The paper's names as compositions of parts. Data, not code: a method is a line here."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from engram.classify import NearestClassMean
from engram.core import Classifier, InputError, Policy, Retrieval, Scheme, Summarizer
from engram.memory import Dynamic, Reservoir
from engram.naming import suggest
from engram.nets import ConvNet, ReducedResNet18
from engram.retrieval import RandomRetrieval
from engram.schemes import SupervisedContrastiveReplay
from engram.summarize import StreamSummarizer

Settings = Mapping[str, Any]

ROOMS = ("scheme", "retrieval", "policy", "summarize", "classifier")
"""The rooms a method takes a part from, by the name their settings go under."""


@dataclass(frozen=True)
class Method:
    """One part a room, how often each stream batch is trained on, and where it comes from."""

    scheme: type[Scheme]
    retrieval: type[Retrieval]
    policy: type[Policy]
    classifier: type[Classifier]
    paper: str
    summarize: type[Summarizer] | None = None
    repeats: int = 1

    def parts(self) -> dict[str, type]:
        found = {room: getattr(self, room) for room in ROOMS}
        return {room: part for room, part in found.items() if part is not None}


METHODS: dict[str, Method] = {
    "scr": Method(
        scheme=SupervisedContrastiveReplay,
        retrieval=RandomRetrieval,
        policy=Reservoir,
        classifier=NearestClassMean,
        paper="Mai et al., 2021",
    ),
}

MEMORIES: dict[str, dict[str, Any]] = {
    "dynamic": {"policy": Dynamic, "paper": "Gu et al., 2024"},
    "ssd": {"policy": Dynamic, "summarize": StreamSummarizer, "paper": "Gu et al., 2024"},
}
"""What `+name` changes in a method."""


def names() -> list[str]:
    """Every method that can be asked for by name."""
    return [*METHODS, *(f"{base}+{memory}" for base in METHODS for memory in MEMORIES)]


def find(name: str) -> Method:
    """The method of that name: an entry of `METHODS`, or one with `+` an entry of `MEMORIES`."""
    base, _, memory = name.rpartition("+")
    if name in METHODS:
        return METHODS[name]
    if base in METHODS and memory in MEMORIES:
        changes = MEMORIES[memory]
        return replace(METHODS[base], **changes | {"paper": f"{METHODS[base].paper}; {changes['paper']}"})
    raise InputError(f"unknown method {name!r}{suggest(name, names())}")


def configurable(method: Method) -> dict[str, Any]:
    """What of a learner takes settings, by the name they go under: the method's parts and the nets it trains."""
    nets = {"net": ReducedResNet18} | ({"theta": ConvNet} if method.summarize else {})
    return method.parts() | nets


def settings_of(part: Any, given: Settings | None = None) -> dict[str, Any]:
    """A part's settings in full: its constructor's defaults, overridden by `given`; unknown names are refused."""
    parameters = inspect.signature(part).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    resolved = {name: value for name, value in defaults.items() if value is not inspect.Parameter.empty}
    for name, value in (given or {}).items():
        if name not in resolved:
            raise InputError(f"{part.__name__} has no setting {name!r}{suggest(name, list(resolved))}")
        if dataclasses.is_dataclass(resolved[name]) and isinstance(value, Mapping):
            group = type(resolved[name])
            value = group(**settings_of(group, value))
        resolved[name] = value
    return resolved
