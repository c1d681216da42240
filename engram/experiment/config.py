"""What decides a run: its configuration, read from its config.yaml, completed and compared."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from engram.errors import InputError
from engram.keeper import DEFAULT_MEMORY_SIZE
from engram.methods import configurable, find, method_settings
from engram.streams import Scenario


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's result.

    Args:
        method: one of `engram methods`.
        dataset: one of `engram data list`, or a folder with one folder of images a class.
        stream: paper (class-balanced batches, full ones only), paper-shuffled (plain shuffle, full batches), strict
            (plain shuffle, every image), blurry(P) (a share P of each task's images comes from other tasks),
            imbalanced(R) (the rarest class has R times fewer images) or iid (all classes together, many epochs); strict
            if neither given nor the method's own.
        seed: of the class order, the stream and every draw of the learner.
        tasks: number of tasks; all classes if not given.
        classes_per_task: classes of a task; ten, or two where there are no more than ten classes.
        images_per_class: training images of a class; all if not given.
        batch: images of a stream batch; 10, or 128 of an iid stream.
        epochs: how often an iid stream shows each image.
        class_order: classes come in an order drawn by the seed, or in their own (fixed).
        instance_order: the images of a class come shuffled, or as the data set has them (kept).
        image_size: pixels a side; the data set's own if not given (a folder's: 32).
        skip_damaged: leave out image files that cannot be read, instead of stopping.
        memory_size: images the memory holds (K); 100 if neither this nor memory_bytes is given.
        memory_bytes: bytes of encoded images the memory holds instead, such as 300KB.
        slots_per_class: slots a class may claim (k); K over all classes of a paper stream, else auto.
        repeats: training steps on each stream batch; the method's own if not given.
        classes_total: outputs softmax heads have from the start; all classes of a paper or iid stream, else they grow.
        average: decay of a moving average of the weights that is kept and read beside the net; none if not given.
        answer_from: whether the result is that of the net or of the averaged net; of the averaged one if there is one.
        boundary_gap: new classes that arrive within so many iterations count as one change of task.
        codec: how images are stored: float32 (as they are), uint8, jpeg(QUALITY) or webp(QUALITY).
        keep_originals: keep the first image of each claimed slot, for the picture of the memory.
        prequential: predict one batch in so many before it is learned from (test, then train); 0 for none.
        settings: settings of the method's parts, by room and name.
    """

    method: str = "scr+ssd"
    dataset: str = "digits"
    stream: str | None = None
    seed: int = 0
    tasks: int | None = None
    classes_per_task: int | None = None
    images_per_class: int | None = None
    batch: int | None = None
    epochs: int = 50
    class_order: Literal["seed", "fixed"] = "seed"
    instance_order: Literal["shuffled", "kept"] = "shuffled"
    image_size: int | None = None
    skip_damaged: bool = False
    memory_size: int | None = None
    memory_bytes: int | str | None = None
    slots_per_class: int | Literal["auto"] | None = None
    repeats: int | None = None
    classes_total: int | None = None
    average: float | None = None
    answer_from: Literal["net", "averaged"] | None = None
    boundary_gap: int = 50
    codec: str = "float32"
    keep_originals: bool = False
    prequential: int = 0
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)


def read_yaml(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise InputError(f"{path} is no YAML: {error}") from error


def config_of(folder: Path) -> RunConfig:
    """What the run in this folder was asked for; settings in full."""
    content = read_yaml(folder / "config.yaml")
    names = {field.name for field in dataclasses.fields(RunConfig)} - {"settings"}
    rooms = configurable(find(content["method"]))
    return RunConfig(
        **{name: value for name, value in content.items() if name in names},
        settings={room: own for room, own in content.items() if room in rooms},
    )


def resolved(config: RunConfig) -> RunConfig:
    """With what follows from the method and the stream filled in."""
    stream = Scenario.parse(config.stream or find(config.method).stream).name
    size = DEFAULT_MEMORY_SIZE if config.memory_size is None and config.memory_bytes is None else config.memory_size
    batch = config.batch or (128 if stream == "iid" else 10)
    return dataclasses.replace(config, stream=stream, batch=batch, memory_size=size)


def learner_settings(config: RunConfig) -> dict[str, dict[str, Any]]:
    """Of the parts: what was asked for, and on the paper's streams, of what was not, what was published."""
    if not Scenario.parse(config.stream or find(config.method).stream).published:
        return config.settings
    parts = configurable(find(config.method))
    published = {room: dict(getattr(part, "published", {})) for room, part in parts.items()}
    rooms = {room: own | config.settings.get(room, {}) for room, own in published.items()}
    return {room: own for room, own in rooms.items() if own}


def differing(text: str, wanted: dict[str, Any]) -> list[str]:
    """What this run sets otherwise than a config.yaml.

    What an earlier version did not know yet it ran by its default.
    """
    try:
        before = yaml.safe_load(text)
    except yaml.YAMLError:
        before = None
    if not isinstance(before, dict):
        return ["it cannot be read"]
    defaults = {field.name: field.default for field in dataclasses.fields(RunConfig)}
    defaults |= json.loads(json.dumps(method_settings(find(wanted["method"]), {}), default=dataclasses.asdict))
    complete = _completed(before, defaults, wanted)
    return [
        f"{name} is {complete.get(name)}, not {wanted.get(name)}"
        for name in sorted(complete.keys() | wanted.keys())
        if complete.get(name) != wanted.get(name)
    ]


def _completed(before: dict[str, Any], defaults: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    """`before`, with the default of each of `names` that it lacks; groups of settings likewise."""
    complete = before | {name: defaults[name] for name in names.keys() - before.keys() if name in defaults}
    for name, group in before.items():
        if all(isinstance(known.get(name), dict) for known in (before, defaults, names)):
            complete[name] = _completed(group, defaults[name], names[name])
    return complete
