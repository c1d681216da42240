"""Runs killed again and again, at any moment of their lives, end with the result of a run nobody disturbed."""

import json
import random
import subprocess
import time
from pathlib import Path

import pytest

from tests.faults.soak import amount
from tests.helpers import start_engram

SMALL = [
    "digits",
    "--tasks",
    "2",
    "--images-per-class",
    "60",
    "--memory-size",
    "10",
    "--net.width",
    "8",
    "--threads",
    "1",
]
METHODS = {
    "scr+ssd": ["--theta.width", "8", "--summarize.queue", "8", "--summarize.interval", "2", "--scheme.replay", "10"],
    "er": [],
    "ocm": ["--images-per-class", "30"],
}


def start(method: str, out: Path) -> subprocess.Popen[str]:
    options = [*SMALL, "--threads", "1", *METHODS[method], "--checkpoint-every", "3b", "--resume", "--out", str(out)]
    return start_engram("run", method, *options)


def result(out: Path) -> dict:
    return json.loads((out / "result.json").read_text()) | {"seconds": None}


@pytest.mark.parametrize(
    ("method", "kills"), [("scr+ssd", amount(4, 80)), ("er", amount(3, 60)), ("ocm", amount(3, 60))]
)
def test_killed_runs_end_as_if_nothing_had_happened(method: str, kills: int, tmp_path: Path) -> None:
    began = time.monotonic()
    whole = start(method, tmp_path / "whole")
    _, error = whole.communicate(timeout=300)
    assert whole.returncode == 0, error
    life = time.monotonic() - began
    dice = random.Random(kills)
    killed = 0
    out = tmp_path / "killed"
    while killed < kills:
        process = start(method, out)
        moment = time.monotonic() + dice.uniform(0.2, 1.1) * life
        while time.monotonic() < moment and process.poll() is None:
            time.sleep(0.01)
        if process.poll() is None:
            process.kill()
            process.communicate()
            killed += 1
            continue
        assert process.returncode == 0, process.communicate()[1]
        assert result(out) == result(tmp_path / "whole")
        out = tmp_path / f"killed-{killed}"
    last = start(method, out)
    _, error = last.communicate(timeout=300)
    assert last.returncode == 0, error
    assert result(out) == result(tmp_path / "whole")
