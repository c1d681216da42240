"""The picture of a memory."""

import torch

from engram.experiment.pictures import CAPTION, GAP, _shown_slots, contact_sheet, to_image
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
