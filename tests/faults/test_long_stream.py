"""A long stream through a tiny net: bytes, resident memory and step time stay flat."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from engram import Learner
from tests.faults.soak import SOAK, amount
from tests.helpers import toy_images

BATCHES = amount(600, 100_000)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_nothing_grows_over_a_long_stream(capsys: pytest.CaptureFixture[str]) -> None:
    learner = Learner(
        "er+ssd",
        memory_size=8,
        net=nn.Sequential(nn.Conv2d(1, 4, 3, stride=4), nn.ReLU()),
        theta={"width": 4},
        scheme={"replay": 2},
        summarize={"queue": 4, "interval": 10},
    )
    rows = np.full((BATCHES, 3), -1.0)
    """Seconds, resident bytes and (now and then) bytes of state; all of it touched before the stream begins."""
    labels = [0, 1, 2, 3]
    for index in range(BATCHES):
        chosen = [labels[index % 4], labels[(index // 50) % 4]]
        start = time.perf_counter()
        learner.observe(toy_images(chosen, index % 1000), chosen)
        rows[index] = (
            time.perf_counter() - start,
            resident_bytes(),
            learner.footprint()["total"] if index % 50 == 0 else 0,
        )
    settled = rows[len(rows) // 4 :]
    at = np.arange(len(settled))
    step_slope, resident_slope = (np.polyfit(at, settled[:, column], 1)[0] for column in (0, 1))
    totals = {int(total) for total in settled[:, 2] if total}
    median = float(np.median(settled[:, 0]))
    with capsys.disabled():
        if SOAK:
            print(
                f"\n{BATCHES} batches: {1000 * median:.2f} ms a step; slopes over a thousand batches: "
                f"{1e6 * step_slope:.2f} ms a step, {1000 * resident_slope / 1024:.1f} KiB resident; "
                f"state {min(totals)} to {max(totals)} bytes"
            )
    assert max(totals) - min(totals) <= 0.01 * max(totals)
    halves = [float(np.median(half[:, 0])) for half in np.array_split(settled, 2)]
    assert halves[1] < 1.5 * halves[0]
    assert resident_slope < amount(20_000, 100), "bytes a batch"
