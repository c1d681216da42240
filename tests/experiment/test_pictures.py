"""The picture of a memory."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from engram.experiment.pictures import (
    CAPTION,
    GAP,
    STREAM_IMAGES,
    _shown_slots,
    contact_sheet,
    save_stream_sheet,
    stream_sheet,
    to_image,
)
from engram.streams import class_incremental, from_arrays
from tests.helpers import feed, small_learner, toy_stream


def test_values_are_clamped_and_grey_becomes_colour() -> None:
    picture = to_image(torch.tensor([[[-1.0, 0.5], [2.0, 1.0]]]), zoom=3)
    assert picture.size == (6, 6)
    assert picture.getpixel((0, 0)) == (0, 0, 0)
    assert picture.getpixel((0, 5)) == (255, 255, 255)
    assert picture.getpixel((5, 0)) == (128, 128, 128)


def test_a_sheet_too_small_for_the_memory_shows_of_every_class() -> None:
    labels = torch.tensor([2, 0, 0, 1, 0, 2, 0, 1])
    assert labels[_shown_slots(labels, 8)].tolist() == [0, 0, 0, 0, 1, 1, 2, 2]
    assert _shown_slots(labels, 3).tolist() == [1, 3, 0]
    assert _shown_slots(labels, 4).tolist() == [1, 2, 3, 0]


def test_originals_stand_above_their_summaries() -> None:
    learner = feed(small_learner(memory_size=2, slots_per_class=1, keep_originals=True), toy_stream(1, 20))
    memory = learner.memory
    assert memory.summary.all()
    sheet = contact_sheet(memory, ["zero", "one"], zoom=1)
    assert sheet.size == (2 * (16 + GAP) + GAP, 2 * (16 + GAP) + CAPTION + GAP)
    top = GAP + CAPTION
    original, summary = memory.read_original(0)[0], memory.read(torch.tensor([0])).x[0, 0]
    for row, shown in ((top, original), (top + 16 + GAP, summary)):
        expected = int((shown[3, 5].clamp(0, 1) * 255).round())
        assert sheet.getpixel((GAP + 5, row + 3)) == (expected,) * 3


def test_between_original_and_summary_stand_images_that_arrived_of_the_class() -> None:
    learner = feed(small_learner(memory_size=2, slots_per_class=1, keep_originals=True), toy_stream(1, 20))
    memory = learner.memory
    arrived = [torch.full((1, 16, 16), level) for level in (0.0, 1.0)]
    sheet = stream_sheet(memory, ["zero", "one"], {1: arrived, 0: arrived}, zoom=1)
    assert sheet.size == (4 * (16 + GAP) + 3 * GAP, 2 * (16 + GAP + CAPTION) + GAP + CAPTION)
    top = GAP + 2 * CAPTION
    for row, slot in enumerate((1, 0)):
        pixels = [memory.read_original(slot), *arrived, memory.read(torch.tensor([slot])).x[0]]
        for left, shown in zip((GAP, 3 * GAP + 16, 4 * GAP + 32, 6 * GAP + 48), pixels, strict=True):
            expected = int((shown[0, 3, 5].clamp(0, 1) * 255).round())
            assert sheet.getpixel((left + 5, top + row * (16 + GAP + CAPTION) + 3)) == (expected,) * 3


def test_a_sheet_of_the_stream_shows_the_run_s_own_images_class_by_class(tmp_path: Path) -> None:
    labels = np.repeat([7, 3, 5], 20)
    levels = np.arange(60, dtype=np.uint8) + np.uint8(10) * labels.astype(np.uint8)
    images = np.broadcast_to(levels[:, None, None, None], (60, 1, 16, 16))
    stream = class_incremental(
        from_arrays(images, labels, images, labels), 0, stream="strict", batch=5, classes_per_task=1
    )
    without, learner = (small_learner(memory_size=3, slots_per_class=1, keep_originals=kept) for kept in (False, True))
    for x, y in stream:
        learner.observe(x, y)
        without.observe(x, y)
    save_stream_sheet(without, stream, tmp_path)
    assert not list(tmp_path.iterdir())
    save_stream_sheet(learner, stream, tmp_path)
    sheet = Image.open(tmp_path / "stream-sheet.png")
    arrivals = np.concatenate([batch for task in stream.tasks for batch in task.batches])
    for row, label in enumerate(learner.labels):
        own = levels[arrivals[labels[arrivals] == label]]
        middle = GAP + 2 * CAPTION + row * (64 + GAP + CAPTION) + 32
        first = sheet.getpixel((GAP + 32, middle))
        shown = [sheet.getpixel((2 * GAP + column * (64 + GAP) + 32, middle)) for column in range(1, STREAM_IMAGES + 1)]
        assert first == (own[0],) * 3
        assert shown[0] == (own[1],) * 3
        assert shown[-1] == (own[-1],) * 3
        assert {level for level, _, _ in shown} <= set(own.tolist())
