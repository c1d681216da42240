"""What a method is above a cut: nothing changes pixels there, and summaries are matched by the part above the cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from engram.augmentations import UNCHANGED, ViewAugmentation
from engram.base.errors import InputError
from engram.base.interfaces import StepPart
from engram.base.settings import schema_of
from engram.memory import AutoQuality, Codec, Compressed, Uint8
from engram.methods import Composition
from engram.summarize import AugmentationRanges

LATENT_DEFAULTS: Mapping[str, Any] = MappingProxyType({"codec": "latent8"})
"""Options of a learner above a cut that differ from their defaults."""


def above_cut(composition: Composition, given: Mapping[str, Any]) -> Composition:
    """Return a composition as it works on latents, or raise an `InputError` if it cannot.

    The augmentation, views of contrastive schemes and the augmentation of summaries are left out, because latents have
    no color and no place to crop. θ is the part above the cut, and stays so when new classes come.

    Args:
        composition: the method with every setting in place.
        given: what the caller gave, by role: settings by name, or a part.
    """
    for role, part in composition.method.parts().items():
        if part.images_only:
            raise InputError(
                f"the {role} {part.__name__} changes images in ways that latents of a frozen net cannot be changed: "
                "choose another one, or leave out freeze"
            )
    if given.get("augment"):
        raise InputError(
            "augment changes pixels, and above the cut there are latents: leave it out, and change images before you "
            "give them"
        )
    settings = {role: dict(own) for role, own in composition.settings.items() if role != "augment"}
    for role, name, above, works in CHANGED:
        own = settings.get(role, {})
        if name not in own:
            continue
        if not _was_given(given.get(role), name, own[name]):
            own[name] = above
        elif not works(own[name]):
            raise InputError(
                f"{role}.{name} changes pixels, and above the cut there are latents: leave it out, and change images "
                "before you give them"
            )
    if "theta" in settings and not given.get("theta"):
        settings["theta"] = {}
    return replace(composition, method=replace(composition.method, augment=None), settings=settings)


def require_latent_codec(codec: Codec) -> None:
    """Raise an `InputError` if a codec cannot keep latents."""
    if isinstance(codec, Uint8 | Compressed | AutoQuality):
        raise InputError(
            f"codec {codec.name} keeps pixels, and a frozen net gives latents: use latent8, latent16 or float32"
        )


def _works_on_latents(view: Any) -> bool:
    """Return whether a view leaves colors and places alone; mirroring a map is fine."""
    return not isinstance(view, ViewAugmentation) or (view.crop == "none" and not view.jitter and not view.gray)


CHANGED: tuple[tuple[str, str, Any, Any], ...] = (
    ("scheme", "augment", UNCHANGED, _works_on_latents),
    ("summarize", "augment", AugmentationRanges(enabled=False), lambda ranges: not ranges.enabled),
    ("summarize", "new_classes", "grow", lambda kept: True),
    ("classifier", "mirror", False, lambda mirror: not mirror),
    ("classifier", "shift", 0, lambda shift: not shift),
)
"""Settings that get another value on latents: role, name, that value, and a test of a value that the caller gives."""


def _was_given(given: Any, name: str, value: Any) -> bool:
    """Return whether the caller gave a setting, by name or in a part."""
    if isinstance(given, StepPart):
        return bool(value != schema_of(type(given))[name].default)
    return isinstance(given, Mapping) and name in given
