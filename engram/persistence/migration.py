"""What earlier versions wrote, brought into today's form. Files are read through here and never edited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engram.base.errors import InputError


def migrate_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a learner or a run, with settings that an earlier version wrote as they are now.

    What the view augmentation does not name was run as `VIEW_OF_0_1_0` says.
    """
    migrated = {name: _renamed(value) for name, value in config.items()}
    scheme = migrated.get("scheme")
    view = scheme.get("augment") if isinstance(scheme, Mapping) else None
    if isinstance(scheme, Mapping) and isinstance(view, Mapping) and "crop_scale" in view:
        migrated["scheme"] = {**scheme, "augment": VIEW_OF_0_1_0 | dict(view)}
    return migrated


VIEW_OF_0_1_0 = {"crop": "aligned", "jitter_kind": "additive"}
"""What the view augmentation did before its settings had a name for it."""
OTHER_PRACTICE_IN_0_1_0 = ("ewc++", "aser", "dvc", "ocm", "rar", "rar-s", "rar-ncm", "scr")
"""Methods that version 0.1.0 ran otherwise than their released code does and this version does (docs/method.md)."""


RENAMED = {"grey": "gray", "neighbours": "neighbors"}
"""Settings that had another name before 0.2.0."""


def _renamed(settings: Any) -> Any:
    """Return settings, also those in groups, by their names of today."""
    if not isinstance(settings, Mapping):
        return settings
    return {RENAMED.get(name, name): _renamed(value) for name, value in settings.items()}


def settings_of_version(settings: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return complete settings of today with what a version ran otherwise."""
    scheme = settings.get("scheme", {})
    if version != "0.1.0":
        return dict(settings)
    if "crop" in scheme.get("augment", {}):
        scheme = {**scheme, "augment": {**scheme["augment"], **VIEW_OF_0_1_0}}
    if scheme.get("passes") == "thrice":
        scheme = {**scheme, "passes": "joint-mean"}
    return {**settings, "scheme": scheme} if scheme else dict(settings)


def departs_from_practice(method: str, version: str) -> bool:
    """Return whether a version ran this method otherwise than today's does, whatever the settings say."""
    changed = OTHER_PRACTICE_IN_0_1_0
    return version == "0.1.0" and (method in changed or method.rpartition("+")[0] in changed)


def migrate_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result in the format of today, or raise an `InputError` if it does not say what it is a result of.

    Format 1 was flat: it named the limit in bytes `memory_budget`, the bytes held `memory_bytes`, and of the settings
    only those that were not the default.
    """
    if "config" in result:
        return dict(result)
    unsaid = [name for name in _OPTIONS_OF_FORMAT_1 if name not in result and name not in _LATER_IN_FORMAT_1]
    if unsaid:
        raise InputError(f"it does not say {', '.join(unsaid)}: it is of an early version, run it again")
    options = {name: result[name] for name in _OPTIONS_OF_FORMAT_1 if name in result}
    options["memory_bytes"] = result["memory_budget"]
    options["answer_from"] = result.get("answer_from") or "net"
    width = -(-int(result["classes"]) // int(result["tasks"]))
    options["classes_per_task"] = result.get("classes_per_task") or width
    options["settings"] = _settings_of_format_1(result)
    measured = {name: value for name, value in result.items() if name in _MEASURED_OF_FORMAT_1}
    version = "0.1.0" if "readings" not in result else "0.2.0"
    return {"format": 2, "version": version, "config": options, **measured}


_OPTIONS_OF_FORMAT_1 = (
    *("method", "dataset", "stream", "tasks", "images_per_class", "batch", "epochs", "skip_damaged", "class_order"),
    *("instance_order", "image_size", "memory_size", "slots_per_class", "repeats", "classes_total", "boundary_gap"),
    *("codec", "keep_originals", "seed", "average", "answer_from"),
)
_LATER_IN_FORMAT_1 = ("keep_originals", "average", "answer_from")
_MEASURED_OF_FORMAT_1 = (
    *("classes", "accuracy_matrix", "readings", "prequential", "seconds", "footprint", "memory_images"),
    *("images_seen", "summarize_rounds"),
)


def _settings_of_format_1(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a result. Those before 0.2.0 had no name for what they did otherwise."""
    settings: dict[str, Any] = {role: dict(own) for role, own in _renamed(result["settings"]).items()}
    base = str(result["method"]).split("+")[0]
    if "readings" not in result:
        scheme = settings.setdefault("scheme", {})
        if base in ("scr", "rar-s", "dvc"):
            scheme["augment"] = VIEW_OF_0_1_0 | scheme.get("augment", {})
        if base == "aser":
            scheme.setdefault("passes", "joint-mean")
    return settings
