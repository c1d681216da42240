"""The paper's names as compositions of parts. Data, not code: a method is a line here."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np

from engram.classify import NearestClassMean, Softmax
from engram.core import Augmentation, Classifier, Part, Policy, Retrieval, Scheme, Summarizer
from engram.errors import InputError
from engram.memory import Dynamic, GradientSelection, NoMemory, Reservoir, ShapleyMemory
from engram.naming import suggest
from engram.nets import ConvNet, ReducedResNet18
from engram.retrieval import (
    MaximalGradientInterference,
    MaximallyInterfered,
    RandomRetrieval,
    ShapleyRetrieval,
)
from engram.schemes import (
    AveragedGradientEpisodicMemory,
    DualViewConsistency,
    ElasticWeightConsolidation,
    ExperienceReplay,
    FineTune,
    LearningWithoutForgetting,
    MutualInformationMaximisation,
    RandAugment,
    SupervisedContrastiveReplay,
)
from engram.summarize import StreamSummarizer

Settings = Mapping[str, Any]

ROOMS = ("scheme", "augment", "retrieval", "policy", "summarize", "classifier")
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
    augment: type[Augmentation] | None = None
    """Applied to stream and replay images before every training step."""
    repeats: int = 1
    settings: Mapping[str, Settings] = field(default_factory=dict)
    """What this method sets otherwise than its parts' defaults, by room."""
    stream: Literal["strict", "iid"] = "strict"
    """The stream a run of this method takes unless told otherwise."""

    def parts(self) -> dict[str, type[Part]]:
        found = {room: getattr(self, room) for room in ROOMS}
        return {room: part for room, part in found.items() if part is not None}


_FINE_TUNE = Method(FineTune, RandomRetrieval, NoMemory, Softmax, paper="lower bound")
_ER = Method(ExperienceReplay, RandomRetrieval, Reservoir, Softmax, paper="Chaudhry et al., 2019")
_SCR = replace(_ER, scheme=SupervisedContrastiveReplay, classifier=NearestClassMean, paper="Mai et al., 2021")
_ASER: dict[str, Any] = {"policy": ShapleyMemory, "paper": "Shim et al., 2021"}
_GSS: dict[str, Any] = {"policy": GradientSelection, "paper": "Aljundi et al., 2019 (GSS)"}
_RAR: dict[str, Any] = {"augment": RandAugment, "repeats": 10, "paper": "Zhang et al., 2022"}

METHODS: dict[str, Method] = {
    "fine-tune": _FINE_TUNE,
    "iid-offline": replace(_FINE_TUNE, stream="iid", paper="upper bound"),
    "ewc++": replace(_FINE_TUNE, scheme=ElasticWeightConsolidation, paper="Chaudhry et al., 2018"),
    "lwf": replace(_FINE_TUNE, scheme=LearningWithoutForgetting, paper="Li & Hoiem, 2017"),
    "a-gem": replace(_ER, scheme=AveragedGradientEpisodicMemory, paper="Chaudhry et al., 2019 (A-GEM)"),
    "er": _ER,
    "mir": replace(_ER, retrieval=MaximallyInterfered, paper="Aljundi et al., 2019 (MIR)"),
    "gss": replace(_ER, **_GSS),
    "aser": replace(_ER, retrieval=ShapleyRetrieval, settings={"scheme": {"passes": "joint-mean"}}, **_ASER),
    "dvc": replace(_ER, scheme=DualViewConsistency, retrieval=MaximalGradientInterference, paper="Gu et al., 2022"),
    "scr": _SCR,
    "ocm": replace(_ER, scheme=MutualInformationMaximisation, paper="Guo et al., 2022"),
    "rar": replace(_ER, settings={"scheme": {"passes": "joint"}}, **_RAR),
    "rar-s": replace(_SCR, **_RAR),
    "rar-ncm": replace(_ER, settings={"scheme": {"passes": "joint"}}, **_RAR | {"classifier": NearestClassMean}),
}

MEMORIES: dict[str, dict[str, Any]] = {
    "gss": _GSS,
    "aser": _ASER,
    "dynamic": {"policy": Dynamic, "paper": "Gu et al., 2024"},
    "ssd": {"policy": Dynamic, "summarize": StreamSummarizer, "paper": "Gu et al., 2024"},
}
"""What `+name` changes in a method."""


def names() -> list[str]:
    """Every method that can be asked for by name."""
    combined = [f"{base}+{memory}" for base in METHODS for memory in MEMORIES]
    return [*METHODS, *(name for name in combined if not unmet_needs(find(name)))]


def unmet_needs(method: Method) -> list[str]:
    """What parts of this composition need and no part of it provides, in words."""
    provided = frozenset[str]().union(*(part.provides for part in method.parts().values()))
    return [
        f"{part.__name__} needs {need}, which no part of this method provides"
        for part in method.parts().values()
        for need in sorted(part.needs - provided)
    ]


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


def method_settings(method: Method, given: Mapping[str, Settings | None]) -> dict[str, dict[str, Any]]:
    """Every setting of every room: the parts' defaults, overridden by the method's own, overridden by `given`."""
    parts = configurable(method)
    for room, own in given.items():
        if own and room not in parts:
            raise InputError(f"this method has no {room}, so it takes no settings for it: it has {', '.join(parts)}")
    return {
        room: settings_of(part, {**method.settings.get(room, {}), **(given.get(room) or {})})
        for room, part in parts.items()
    }


def changed_settings(method: Method, given: Mapping[str, Settings | None]) -> dict[str, dict[str, Any]]:
    """Those of `given` that are not the method's own, as numbers, strings, lists and dicts; rooms without any are left
    out."""
    defaults, resolved = method_settings(method, {}), method_settings(method, given)
    changed = {
        room: plain({name: value for name, value in own.items() if value != defaults[room][name]})
        for room, own in resolved.items()
    }
    return {room: own for room, own in changed.items() if own}


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
        value = value.item() if isinstance(value, np.generic) else value
        _require_kind(f"{part.__name__}'s {name}", parameters[name], value)
        resolved[name] = value
    return resolved


def _require_kind(name: str, parameter: inspect.Parameter, value: Any) -> None:
    """A truth value, a whole number, a number or a string, where the setting is one of these."""
    kinds: dict[str, tuple[Any, str]] = {
        "bool": (bool, "true or false"),
        "int": (Integral, "a whole number"),
        "float": (Real, "a number"),
        "str": (str, "a string"),
    }
    kind, words = kinds.get(str(parameter.annotation), (object, ""))
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool and words):
        raise InputError(f"{name} is {value!r}: need {words}")


def plain(settings: Settings) -> dict[str, Any]:
    """Settings as numbers, strings, lists and dicts."""
    return {
        name: dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
        for name, value in settings.items()
    }
