"""The paper's names as compositions of parts. Data, not code: a method is a line here."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from typing import Any, Literal

from engram.augmentations import RandAugment, RandomView
from engram.base.errors import InputError, UnknownPartError
from engram.base.interfaces import Augmentation, Classifier, Policy, Retrieval, Scheme, StepPart, Summarizer
from engram.base.naming import suggest
from engram.base.plugins import PLUGIN_GROUP, PLUGIN_VARIABLE
from engram.base.settings import Settings, as_plain_data, resolve
from engram.classifiers import FromScratch, NearestClassMean, Softmax
from engram.memory import Balanced, Dynamic, GradientSelection, NoMemory, Reservoir, ShapleyMemory
from engram.nets import ConvNet, ReducedResNet18
from engram.options import LIMITS
from engram.retrieval import (
    MaximalGradientInterference,
    MaximallyInterfered,
    RandomRetrieval,
    ShapleyRetrieval,
)
from engram.schemes import (
    AsymmetricReplay,
    AveragedGradientEpisodicMemory,
    DarkExperienceReplay,
    DualViewConsistency,
    ElasticWeightConsolidation,
    ExperienceReplay,
    FineTune,
    LearningWithoutForgetting,
    MomentumDistillation,
    MutualInformationMaximization,
    ProxyContrastiveReplay,
    SupervisedContrastiveReplay,
    Untrained,
)
from engram.summarize import StreamSummarizer

DEFAULT_METHOD = "er-ema"
"""What learns if no method is named: most accuracy for the bytes and the seconds (docs/results.md)."""

ROLES: dict[str, type[StepPart]] = {
    "scheme": Scheme,
    "augment": Augmentation,
    "retrieval": Retrieval,
    "policy": Policy,
    "summarize": Summarizer,
    "classifier": Classifier,
}
"""The roles of parts in a method, and the base class of each; settings go under the same names."""


@dataclass(frozen=True)
class Method:
    """A composition of parts.

    Args:
        scheme: how one step trains the net.
        retrieval: which memory images are replayed.
        policy: which images enter the memory.
        classifier: how the learner answers.
        paper: where the method comes from.
        summarize: how the memory is improved, if it is.
        augment: how stream and replay images are changed before every training step, if they are.
        repeats: training steps on each stream batch.
        settings: settings that differ from the parts' defaults, by role.
        stream: the stream that a run of this method takes if none is named.
        options: options of the learner that differ from their defaults.
        announced: whether softmax heads have all classes of a paper stream from the start, as published.
    """

    scheme: type[Scheme]
    retrieval: type[Retrieval]
    policy: type[Policy]
    classifier: type[Classifier]
    paper: str
    summarize: type[Summarizer] | None = None
    augment: type[Augmentation] | None = None
    repeats: int = 1
    settings: Mapping[str, Settings] = field(default_factory=dict)
    stream: Literal["strict", "iid"] = "strict"
    options: Mapping[str, Any] = field(default_factory=dict)
    announced: bool = True

    def with_defaults(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given options, and those of the method for what is not given.

        A limit of the memory that is given replaces the method's, in whatever unit. An `InputError` says if the method
        cannot do with or without an averaged net.
        """
        if given.get("average") is not None and "first weights" in self.scheme.provides:
            raise InputError(f"average is {given['average']}, but {self.scheme.__name__} trains no net: leave it out")
        limited = any(given.get(name) is not None for name in LIMITS)
        own = {name: value for name, value in self.options.items() if not (limited and name in LIMITS)}
        chosen = {**own, **{name: value for name, value in given.items() if value is not None or name not in LIMITS}}
        if self.scheme.uses_average and chosen.get("average") is None:
            raise InputError(f"{self.scheme.__name__} learns from the averaged net: give average=0.99 too")
        return chosen

    def parts(self) -> dict[str, type[StepPart]]:
        """Return the classes of its parts, by role."""
        found = {role: getattr(self, role) for role in ROLES}
        return {role: part for role, part in found.items() if part is not None}


_FINE_TUNE = Method(FineTune, RandomRetrieval, NoMemory, Softmax, paper="lower bound")
_ER = Method(ExperienceReplay, RandomRetrieval, Reservoir, Softmax, paper="Chaudhry et al., 2019")
_SCR = replace(_ER, scheme=SupervisedContrastiveReplay, classifier=NearestClassMean, paper="Mai et al., 2021")
_ASER: dict[str, Any] = {"policy": ShapleyMemory, "paper": "Shim et al., 2021"}
_GSS: dict[str, Any] = {"policy": GradientSelection, "paper": "Aljundi et al., 2019 (GSS)"}
_RAR: dict[str, Any] = {"augment": RandAugment, "repeats": 10, "paper": "Zhang et al., 2022"}

_GDUMB = Method(Untrained, RandomRetrieval, Balanced, FromScratch, paper="Prabhu et al., 2020")

_ER_EMA = replace(
    _ER,
    scheme=ProxyContrastiveReplay,
    policy=Balanced,
    augment=RandomView,
    classifier=NearestClassMean,
    repeats=2,
    settings={
        "scheme": {"replay": 64, "views": "one", "passes": "joint"},
        "augment": {"side": 0.75},
        "classifier": {"mirror": True},
    },
    options={"average": 0.99, "codec": "avif(35)", "memory_bytes": 300_000},
    announced=False,
    paper="ours",
)
"""Not of the paper: replay with the levers that give most accuracy per byte and second (docs/results.md)."""

METHODS: dict[str, Method] = {
    "er-ema": _ER_EMA,
    "fine-tune": _FINE_TUNE,
    "iid-offline": replace(_FINE_TUNE, stream="iid", paper="upper bound"),
    "ewc++": replace(_FINE_TUNE, scheme=ElasticWeightConsolidation, paper="Chaudhry et al., 2018"),
    "lwf": replace(_FINE_TUNE, scheme=LearningWithoutForgetting, paper="Li & Hoiem, 2017"),
    "a-gem": replace(_ER, scheme=AveragedGradientEpisodicMemory, paper="Chaudhry et al., 2019 (A-GEM)"),
    "er": _ER,
    "er-ace": replace(_ER, scheme=AsymmetricReplay, paper="Caccia et al., 2022"),
    "der++": replace(_ER, scheme=DarkExperienceReplay, paper="Buzzega et al., 2020"),
    "gdumb": _GDUMB,
    "mir": replace(_ER, retrieval=MaximallyInterfered, paper="Aljundi et al., 2019 (MIR)"),
    "gss": replace(_ER, **_GSS),
    "aser": replace(_ER, retrieval=ShapleyRetrieval, settings={"scheme": {"passes": "thrice"}}, **_ASER),
    "dvc": replace(_ER, scheme=DualViewConsistency, retrieval=MaximalGradientInterference, paper="Gu et al., 2022"),
    "scr": _SCR,
    "ocm": replace(_ER, scheme=MutualInformationMaximization, paper="Guo et al., 2022"),
    "mkd": replace(_ER, scheme=MomentumDistillation, options={"average": 0.99}, paper="Michel et al., 2024"),
    "pcr": replace(_ER, scheme=ProxyContrastiveReplay, paper="Lin et al., 2023"),
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


def load_plugins() -> None:
    """Import the modules that add methods and other parts from outside this package.

    They are the entry points of the group "engram.plugins", and the modules that the environment variable
    ENGRAM_PLUGINS names, separated by commas. Importing a module twice changes nothing.
    """
    for entry in entry_points(group=PLUGIN_GROUP):
        entry.load()
    for module in filter(None, os.environ.get(PLUGIN_VARIABLE, "").split(",")):
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise InputError(f"the plugin {module!r} cannot be imported: {error}") from error


def names() -> list[str]:
    """Return the name of every method, and of its combinations with another memory than its own."""
    combined = [
        f"{base}+{memory}"
        for base, method in METHODS.items()
        for memory, changes in MEMORIES.items()
        if method.policy is not changes["policy"]
    ]
    return [*METHODS, *(name for name in combined if not unmet_needs(find_method(name)))]


def unmet_needs(method: Method) -> list[str]:
    """Return in words what parts of this composition need and no part of it provides."""
    provided = frozenset[str]().union(*(part.provides for part in method.parts().values()))
    return [
        f"{part.__name__} needs {need}, which no part of this method provides"
        for part in method.parts().values()
        for need in sorted(part.needs - provided)
    ]


def find_method(name: str) -> Method:
    """Return the method of that name: an entry of `METHODS`, or one joined by `+` with an entry of `MEMORIES`."""
    base, _, memory = name.rpartition("+")
    if name in METHODS:
        return METHODS[name]
    if base in METHODS and memory in MEMORIES:
        changes = MEMORIES[memory]
        if METHODS[base].policy is changes["policy"]:
            raise InputError(f"{base} has the memory {memory} already: did you mean {base!r}?")
        return replace(METHODS[base], **changes | {"paper": f"{METHODS[base].paper}; {changes['paper']}"})
    raise InputError(f"unknown method {name!r}{_suggested(name)}")


def _suggested(name: str) -> str:
    """Return the end of the message about an unknown method: what was probably meant."""
    spelled = name.strip().lower().replace("_", "-").replace(" ", "")
    if spelled in MEMORIES:
        return f": did you mean {f'scr+{spelled}'!r}? {spelled} is a memory, which a method takes with +"
    turned = "+".join(reversed(spelled.split("+")))
    for meant in (spelled, turned):
        if meant in names():
            return f": did you mean {meant!r}?"
    return suggest(spelled, names() if "+" in spelled else list(METHODS))


def is_method(name: str) -> bool:
    """Return whether there is a method of that name."""
    base, _, memory = name.rpartition("+")
    combined = base in METHODS and memory in MEMORIES
    return name in METHODS or (combined and METHODS[base].policy is not MEMORIES[memory]["policy"])


def configurable(method: Method) -> dict[str, Any]:
    """Return everything of a method that takes settings, by role: its parts, and the nets it trains."""
    nets = {"net": ReducedResNet18} | ({"theta": ConvNet} if method.summarize else {})
    return method.parts() | nets


def method_settings(method: Method, given: Mapping[str, Settings | None]) -> dict[str, dict[str, Any]]:
    """Return every setting of every role: the given values, else the method's own, else the part's defaults."""
    parts = configurable(method)
    for role, own in given.items():
        if own and role not in parts:
            raise InputError(f"this method has no {role}, so it takes no settings for it: it has {', '.join(parts)}")
    return {
        role: resolve(part, {**method.settings.get(role, {}), **(given.get(role) or {})}, f"{role}.")
        for role, part in parts.items()
    }


@dataclass(frozen=True)
class Composition:
    """What a learner is made of: a method with every setting in place.

    Args:
        name: name of the method, or None where the caller composed it.
        method: the classes of the parts.
        settings: all settings of the parts and nets, by role.
    """

    name: str | None
    method: Method
    settings: dict[str, dict[str, Any]]

    @property
    def repeats(self) -> int:
        """Training steps on each stream batch."""
        return self.method.repeats

    def make_parts(self) -> dict[str, Any]:
        """Make a new part for each role."""
        return {role: part(**self.settings[role]) for role, part in self.method.parts().items()}

    def saved_parts(self) -> dict[str, Any]:
        """Return the parts that the method's name does not tell, each by its import path and settings."""
        named = find_method(self.name).parts() if self.name else {}
        return {
            role: {"class": f"{part.__module__}:{part.__qualname__}", "settings": as_plain_data(self.settings[role])}
            for role, part in self.method.parts().items()
            if part is not named.get(role)
        }


def compose(method: str | Method | None, given: Mapping[str, Any]) -> Composition:
    """Compose a method from a name or a `Method`, and for each role settings or a part to use instead.

    A part is taken by its class and settings, and made anew, so that no two learners share one. Without a method, a
    scheme decides the rest: random retrieval, a reservoir, and a classifier that fits it.
    """
    parts = {role: value for role, value in given.items() if isinstance(value, StepPart)}
    for role, part in parts.items():
        if not isinstance(part, ROLES[role]):
            raise InputError(f"{role} is a {type(part).__name__}: need a {ROLES[role].__name__}, or settings by name")
    settings = {role: value for role, value in given.items() if role not in parts}
    for role, value in settings.items():
        if value is not None and not isinstance(value, Mapping):
            kind = f" or a {ROLES[role].__name__}" if role in ROLES else " or a module"
            raise InputError(f"{role} is {value!r}: need settings by name{kind}")
    name, base = _base_of(method, parts.get("scheme"))
    changed: Any = {role: type(part) for role, part in parts.items()}
    composed = replace(base, **changed) if parts else base
    if parts:
        own = {role: value for role, value in base.settings.items() if role not in parts}
        composed = replace(composed, settings=own | {role: part.settings for role, part in parts.items()})
    if unmet := unmet_needs(composed):
        raise InputError(f"{method or 'this composition'} cannot work: {'; '.join(unmet)}")
    return Composition(name, composed, method_settings(composed, settings))


def _base_of(method: str | Method | None, scheme: StepPart | None) -> tuple[str | None, Method]:
    if isinstance(method, Method):
        return next((name for name, known in METHODS.items() if known is method), None), method
    if method is None and isinstance(scheme, Scheme):
        classifier: type[Classifier] = Softmax if "logits" in scheme.provides else NearestClassMean
        return None, Method(type(scheme), RandomRetrieval, Reservoir, classifier, paper="composed by the caller")
    name = method or DEFAULT_METHOD
    if not isinstance(name, str):
        raise InputError(f"method is {method!r}: need a name that `engram methods` lists, or a Method")
    return name, find_method(name)


def restore_part(role: str, saved: Mapping[str, Any]) -> StepPart:
    """Make the part that `Composition.saved_parts` described.

    Its module must be imported already, or belong to this package: loading a file never imports code.
    """
    path = str(saved["class"])
    module_name, _, class_name = path.partition(":")
    if module_name.split(".")[0] == "engram":
        importlib.import_module(module_name)
    module = sys.modules.get(module_name)
    part = getattr(module, class_name, None) if module else None
    if not (isinstance(part, type) and issubclass(part, ROLES[role])):
        raise UnknownPartError(f"its {role} is {path}, which is not known here: import its module first")
    return part(**resolve(part, saved["settings"], f"{role}."))
