"""What decides a run: its method, its options and the settings of the method's parts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict, Unpack, cast

import yaml

from engram.base.errors import InputError
from engram.base.settings import Count, Default, Natural, Settings, as_plain_data, schema_of
from engram.methods import DEFAULT_METHOD, configurable, find_method, is_method, method_settings
from engram.options import LIMITS, LearnerOptions, resolve_options
from engram.persistence.files import read_plain
from engram.persistence.migration import migrate_settings, settings_of_version
from engram.persistence.parsing import parse_yaml
from engram.streams import Scenario, StreamOptions, TaskStream, default_batch


class DataOptions(TypedDict, total=False):
    """Where the images of a run come from."""

    dataset: Annotated[
        str,
        Default("digits"),
        "A name listed by `engram data list`, or a folder with one folder of images per class.",
    ]
    image_size: Annotated[
        Count | None,
        Default(None),
        "Pixels per side; the data set's own if not given (a folder's: 32).",
    ]
    skip_damaged: Annotated[
        bool,
        Default(False),
        "Leave out image files that cannot be read, instead of stopping.",
    ]


class EvaluationOptions(TypedDict, total=False):
    """What is measured besides the accuracy after each task."""

    prequential: Annotated[
        Natural,
        Default(0),
        "Predict one batch in so many before it is learned from (test, then train); 0 for none.",
    ]


class RunOptions(DataOptions, StreamOptions, LearnerOptions, EvaluationOptions, total=False):
    """All options of a run."""


LARGEST_CONFIG = 1 << 17
"""Most bytes of a config.yaml that is read."""
PROTOCOL = (*DataOptions.__annotations__, *StreamOptions.__annotations__, *LIMITS, "count_nets")
"""Options that two runs must share to be compared."""
FILLED_IN = (
    "tasks",
    "classes_per_task",
    "image_size",
    "slots_per_class",
    "classes_total",
    "repeats",
    "answer_from",
)
"""Options that a run fills in from its stream and method if they are not given."""
NOT_COMPARED = ("seed", "device", "threads", "keep_originals", "prequential")
"""Options that do not tell one configuration from another: they change nothing that is learned, but for the seed."""


@dataclass(frozen=True, init=False)
class RunConfig:
    """Everything that decides the result of a run, with defaults filled in.

    Args:
        method: a name listed by `engram methods`.
        settings: settings of the method's parts, by role and name; those not given are filled in.
        options: `RunOptions`, by name.
    """

    method: str
    options: RunOptions
    settings: dict[str, dict[str, Any]]

    def __init__(
        self,
        method: str = DEFAULT_METHOD,
        *,
        settings: Mapping[str, Settings | None] | None = None,
        **options: Unpack[RunOptions],
    ) -> None:
        found = find_method(method)
        complete = resolve_options(RunOptions, found.with_defaults(options))
        scenario = Scenario.parse(complete["stream"] or found.stream)
        self._set(method, complete, scenario, _complete_settings(method, settings or {}, scenario))

    def _set(self, method: str, options: RunOptions, scenario: Scenario, settings: dict[str, dict[str, Any]]) -> None:
        options["stream"], options["batch"] = scenario.name, options["batch"] or default_batch(scenario)
        for name, value in (("method", method), ("options", options), ("settings", settings)):
            object.__setattr__(self, name, value)

    @property
    def scenario(self) -> Scenario:
        """The kind of its stream."""
        return Scenario.parse(self.options["stream"] or "strict")

    def replace(
        self, *, settings: Mapping[str, Settings | None] | None = None, **changes: Unpack[RunOptions]
    ) -> RunConfig:
        """Return the same configuration with other settings, or with other values of some options."""
        limited = any(changes.get(name) is not None for name in LIMITS)
        kept = {name: value for name, value in self.options.items() if not (limited and name in LIMITS)}
        options: Any = {**kept, **changes}
        return RunConfig(self.method, settings=self.settings if settings is None else settings, **options)

    def filled(self, stream: TaskStream) -> RunConfig:
        """Return the configuration with everything that follows from the stream filled in."""
        chosen, scenario = self.options, self.scenario
        width = max(len(task.classes) for task in stream.tasks)
        announced = scenario.published and find_method(self.method).announced
        slots = chosen["slots_per_class"]
        if slots is None:
            size = chosen["memory_size"] if scenario.bounded else None
            slots = "auto" if size is None else max(1, size // stream.class_count)
        return self.replace(
            tasks=len(stream.tasks) if len(stream.tasks) * width == stream.class_count else chosen["tasks"],
            classes_per_task=width,
            image_size=int(stream.dataset.train_x.shape[-1]),
            slots_per_class=slots,
            classes_total=chosen["classes_total"] or (stream.class_count if announced else None),
            repeats=chosen["repeats"] or find_method(self.method).repeats,
            answer_from=chosen["answer_from"] or ("net" if chosen["average"] is None else "averaged"),
        )

    def identity(self) -> dict[str, Any]:
        """Return what tells this configuration from others: all of it but the seed and what changes no result."""
        known = {name: value for name, value in self.options.items() if name not in NOT_COMPARED}
        learns_from_it = is_method(self.method) and find_method(self.method).scheme.uses_average
        if self.options["answer_from"] != "averaged" and not learns_from_it:
            known["average"] = None
        if self.scenario.kind != "iid":
            known["epochs"] = None
        return {"method": self.method} | known | {"settings": self.settings}

    def asks_for(self, other: RunConfig) -> bool:
        """Return whether `other` is this configuration, with what was left open here filled in, and any seed."""
        mine, theirs = self.identity(), other.identity()
        open_options = {name for name, value in mine.items() if value is None}
        if self.scenario.kind == "iid":
            open_options |= {"tasks", "classes_per_task"}
        return all(theirs[name] == value for name, value in mine.items() if name not in open_options)

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as plain data."""
        content = {"method": self.method} | dict(self.options) | {"settings": self.settings}
        return cast(dict[str, Any], json.loads(json.dumps(content)))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> RunConfig:
        """Return the configuration that `to_dict` or a config.yaml gave.

        The method may be one that is not known here, such as that of a plugin: its settings are then taken as they are.
        """
        known: Any = {name: value for name, value in content.items() if name in schema_of(RunOptions)}
        method, roles = content.get("method"), content.get("settings", {})
        if not isinstance(method, str) or not isinstance(roles, Mapping):
            raise InputError("a configuration names its method, and its settings by role")
        roles = dict(roles)
        if is_method(method):
            roles |= {role: own for role, own in content.items() if role in configurable(find_method(method))}
        for role, own in roles.items():
            if own is not None and not isinstance(own, Mapping):
                raise InputError(f"{role} is {str(own)[:40]!r}: need settings by name")
        if is_method(method):
            return cls(method, settings=roles, **known)
        config, options = cls.__new__(cls), resolve_options(RunOptions, known)
        config._set(method, options, Scenario.parse(options["stream"] or "strict"), roles)
        return config


def read_yaml(path: Path) -> Any:
    """Return what a YAML file holds; one that is damaged, or far too much for settings, is refused by name."""
    content = read_plain(path, LARGEST_CONFIG, follow=True)
    try:
        return parse_yaml(content)
    except ValueError as error:
        raise InputError(f"{path} is not valid YAML: {error}") from error


def config_of(folder: Path) -> RunConfig:
    """Return the configuration of the run in a folder."""
    content = read_yaml(folder / "config.yaml")
    if not isinstance(content, dict):
        raise InputError(f"{folder / 'config.yaml'} holds no options of a run")
    return RunConfig.from_dict(migrate_settings(content))


def config_text(config: RunConfig) -> str:
    """Return the text of a config.yaml."""
    content = config.to_dict()
    return yaml.safe_dump(content | content.pop("settings"), sort_keys=False)


def differences(text: bytes, wanted: RunConfig) -> list[str]:
    """Return in words what a run sets otherwise than a config.yaml says.

    What the file leaves out, as one of an earlier version does, was run by its default. What a run fills in by itself
    does not differ where the file leaves it open.
    """
    try:
        before = parse_yaml(text)
        if not isinstance(before, dict):
            return ["it cannot be read"]
        known = RunConfig.from_dict(migrate_settings(before)).to_dict()
    except (ValueError, KeyError, TypeError, AttributeError):
        return ["it cannot be read"]
    after = wanted.to_dict()
    unknown = {name: value for name, value in before.items() if name not in known | known["settings"]}
    ignored = {"device", "threads"} | {name for name in FILLED_IN if known[name] is None}
    pairs = _flat_pairs(known | known.pop("settings") | unknown, after | after.pop("settings"))
    return [f"{name} is {old}, not {new}" for name, old, new in pairs if name not in ignored and old != new]


def _flat_pairs(before: Mapping[str, Any], after: Mapping[str, Any], owner: str = "") -> list[tuple[str, Any, Any]]:
    """Return name, old value and new value of everything that either side sets; names of groups are joined by dots."""
    pairs = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            pairs += _flat_pairs(old, new, f"{owner}{name}.")
        else:
            pairs.append((owner + name, old, new))
    return pairs


def _complete_settings(
    method: str, given: Mapping[str, Settings | None], scenario: Scenario
) -> dict[str, dict[str, Any]]:
    """Return every setting as plain data: the given ones, else on the paper's streams the published ones, else those
    of recorded runs, else the method's own."""
    found = find_method(method)
    published = {
        role: dict(getattr(part, "recorded", {})) | (dict(getattr(part, "published", {})) if scenario.published else {})
        for role, part in configurable(found).items()
    }
    roles = published | {role: published.get(role, {}) | dict(own or {}) for role, own in given.items()}
    complete = {role: as_plain_data(own) for role, own in method_settings(found, roles).items()}
    return cast(dict[str, dict[str, Any]], json.loads(json.dumps(complete)))


def changed_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings, by full name, that differ from those of a run of the same method on the same stream."""
    known = is_method(config.method)
    default = (
        _complete_settings(config.method, {}, config.scenario) if known else {role: {} for role in config.settings}
    )
    return {name: new for name, old, new in _flat_pairs(default, config.settings) if old != new}


def of_version(config: RunConfig, version: str) -> RunConfig:
    """Return the configuration as an earlier version ran it, where that differs."""
    settings = settings_of_version(config.settings, version)
    return config if settings == config.settings else config.replace(settings=settings)
