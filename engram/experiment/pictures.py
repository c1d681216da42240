"""Pictures of a memory: its images by class, and summaries next to the images they come from."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from engram.base.batch import as_float
from engram.base.escaping import for_terminal
from engram.base.naming import class_name
from engram.base.validation import Label
from engram.learner import Learner
from engram.memory import Store
from engram.persistence.files import replace_file
from engram.streams import TaskStream

GAP, CAPTION = 4, 12
"""Pixels between images, and pixels for the name of a class."""
COLUMNS = 10
"""Number of slots in a row of a contact sheet."""
LARGEST_SHEET = 100
"""Largest number of slots on a contact sheet."""
STREAM_CLASSES, STREAM_IMAGES = 10, 8
"""Number of rows of a stream sheet, and number of stream images in each row."""


def save_memory(learner: Learner, class_names: Sequence[str], folder: Path) -> None:
    """Write `contact-sheet.png` and `memory.safetensors` (with unclamped values) into `folder`.

    If the memory is empty, no file is written.

    Args:
        learner: the learner whose memory is written.
        class_names: names of the classes, by label.
        folder: folder to write into.
    """
    folder.mkdir(parents=True, exist_ok=True)
    memory = learner.memory
    if not memory.size:
        return
    batch = memory.read(memory.filled())
    tensors = {
        "images": batch.x.cpu(),
        "labels": batch.y.cpu(),
        "claimed": memory.claimed[: memory.size].clone(),
        "summary": memory.summary[: memory.size].clone(),
    }
    if memory.originals:
        slots = sorted(memory.slot_of(identity) for identity in memory.originals)
        tensors["original_slots"] = torch.tensor(slots)
        tensors["originals"] = torch.stack([memory.read_original(slot) for slot in slots])
    content = safetensors.torch.save({name: value.contiguous() for name, value in tensors.items()})
    replace_file(folder / "memory.safetensors", content)
    save_picture(contact_sheet(memory, _shown_names(learner, class_names)), folder / "contact-sheet.png")


def save_snapshot(learner: Learner, class_names: Sequence[str], folder: Path, task: int) -> None:
    """Write a contact sheet of the memory after a task, as `task-<number>.png`. An empty memory writes no file."""
    if learner.memory.size:
        folder.mkdir(parents=True, exist_ok=True)
        names = _shown_names(learner, class_names)
        save_picture(contact_sheet(learner.memory, names), folder / f"task-{task}.png")


def save_picture(picture: Image.Image, path: Path) -> None:
    """Write a picture as a PNG file, as a whole or not at all."""
    content = io.BytesIO()
    picture.save(content, "png", optimize=True)
    replace_file(path, content.getvalue())


def save_stream_sheet(learner: Learner, stream: TaskStream, folder: Path) -> None:
    """Write `stream-sheet.png`, which shows for some classes how images of the stream became a summary.

    Only classes with a slot whose original image is kept are shown. If there are none, no file is written.
    """
    memory = learner.memory
    slots = [slot for slot in range(memory.size) if int(memory.ids[slot]) in memory.originals]
    if not slots:
        return
    first_slot = {int(memory.labels[slot]): slot for slot in reversed(slots)}
    arrivals = {
        first_slot[index]: _arrivals(stream, learner.labels[index], STREAM_IMAGES)
        for index in _spread(sorted(first_slot), STREAM_CLASSES)
    }
    names = _shown_names(learner, stream.dataset.class_names)
    save_picture(stream_sheet(memory, names, arrivals), folder / "stream-sheet.png")


def stream_sheet(
    memory: Store, names: Sequence[str], arrivals: Mapping[int, Sequence[Tensor]], zoom: int | None = None
) -> Image.Image:
    """Draw one row per slot: its first image, images of its class from the stream, and the summary it holds now.

    Args:
        memory: the memory; it must keep the originals of these slots.
        names: names of the classes, by class index.
        arrivals: images of the stream to show, by slot.
        zoom: width and height of a drawn pixel; if not given, images are about 64 pixels wide.
    """
    size = memory.shape[-1]
    zoom = zoom or max(1, round(64 / size))
    side = size * zoom
    height = side + GAP + CAPTION
    columns = 2 + max(len(images) for images in arrivals.values())
    sheet = Image.new("RGB", (columns * (side + GAP) + 3 * GAP, len(arrivals) * height + GAP + CAPTION), "white")
    pen = ImageDraw.Draw(sheet)
    for column, heading in ((0, "first"), (1, "later images of the stream"), (columns - 1, "summary")):
        apart = GAP * ((column > 0) + (column == columns - 1))
        pen.text((GAP + column * (side + GAP) + apart, 0), heading, fill="black")
    for row, (slot, images) in enumerate(arrivals.items()):
        top = GAP + CAPTION + row * height
        pen.text((GAP, top), names[int(memory.labels[slot])], fill="black")
        held = memory.read(torch.tensor([slot])).x[0].cpu()
        for column, pixels in enumerate([memory.read_original(slot), *images, held]):
            apart = GAP * ((column > 0) + (column > len(images)))
            sheet.paste(to_image(pixels, zoom), (GAP + column * (side + GAP) + apart, top + CAPTION))
    return sheet


def _arrivals(stream: TaskStream, label: Label, count: int) -> list[Tensor]:
    """Return up to `count` images of a class, evenly spread over the stream.

    The first image of the class is left out, because the sheet shows it already.
    """
    indices = np.concatenate([batch for task in stream.tasks for batch in task.batches])
    own = indices[stream.dataset.labels_of(stream.dataset.train_y[indices]) == label]
    own = own[1:] if len(own) > 1 else own
    return [as_float(torch.from_numpy(np.array(stream.dataset.train_x[index]))) for index in _spread(own, count)]


def _spread(values: Sequence[int], count: int) -> list[int]:
    """Return at most `count` of the values, evenly spread from the first to the last."""
    return [int(values[at]) for at in np.unique(np.linspace(0, len(values) - 1, count).round().astype(int))]


def snapshots(run: Path) -> list[tuple[int, Path]]:
    """Return the pictures that `save_snapshot` wrote in a run folder, each with its task number, in order.

    Links, and folders that are links, are left out: they may lead to files that are none of the run's.
    """
    folder = run / "memory"
    pictures = [] if folder.is_symlink() else [path for path in folder.glob("task-*.png") if not path.is_symlink()]
    found = [(path.stem.removeprefix("task-"), path) for path in pictures if path.is_file()]
    return sorted((int(task), path) for task, path in found if task.isdecimal())


def _shown_names(learner: Learner, class_names: Sequence[str]) -> list[str]:
    """Return the names of the classes, in the order in which the learner saw them first."""
    return [for_terminal(class_name(label, class_names), keep="") for label in learner.labels]


def contact_sheet(
    memory: Store, names: Sequence[str], limit: int = LARGEST_SHEET, zoom: int | None = None
) -> Image.Image:
    """Draw the slots of a memory, sorted by class. If the original image of a slot is kept, it is drawn above.

    Args:
        memory: the memory; it must hold an image.
        names: names of the classes, by class index.
        limit: largest number of slots; if there are more, all classes get about the same number.
        zoom: width and height of a drawn pixel; if not given, images are about 48 pixels wide.
    """
    slots = _shown_slots(memory.labels[: memory.size], limit)
    size = memory.shape[-1]
    zoom = zoom or max(1, round(48 / size))
    side = size * zoom
    rows = 2 if memory.originals else 1
    width, height = side + GAP, rows * (side + GAP) + CAPTION
    columns = min(COLUMNS, len(slots))
    lines = math.ceil(len(slots) / columns)
    sheet = Image.new("RGB", (columns * width + GAP, lines * height + GAP), "white")
    pen = ImageDraw.Draw(sheet)
    for position, slot in enumerate(slots.tolist()):
        left, top = GAP + position % columns * width, GAP + position // columns * height
        pen.text((left, top), names[int(memory.labels[slot])][: side // 6], fill="black")
        shown = [memory.read_original(slot)] if int(memory.ids[slot]) in memory.originals else []
        shown.append(memory.read(torch.tensor([slot])).x[0].cpu())
        for row, pixels in enumerate(shown):
            sheet.paste(to_image(pixels, zoom), (left, top + CAPTION + row * (side + GAP)))
    return sheet


def _shown_slots(labels: Tensor, limit: int) -> Tensor:
    """Return at most `limit` slots, sorted by class.

    They are the first slot of every class, then the second of every class, and so on.
    """
    by_class = labels.argsort(stable=True)
    counts = labels.bincount()
    rank = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels[by_class]]
    chosen = rank.argsort(stable=True)[:limit].sort().values
    return by_class[chosen]


def to_image(pixels: Tensor, zoom: int = 1) -> Image.Image:
    """Return a picture of an image.

    Args:
        pixels: the image (C,H,W); its values are clamped to [0,1].
        zoom: width and height of a drawn pixel.
    """
    values = (pixels.clamp(0, 1) * 255).round().to(torch.uint8)
    array = values.expand(3, -1, -1).permute(1, 2, 0).numpy()
    picture = Image.fromarray(array)
    return picture.resize((picture.width * zoom, picture.height * zoom), Image.Resampling.NEAREST)
