"""Every method keeps its tensors on one device: shown on a pretended one, which refuses to be mixed with the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engram.methods import METHODS, names
from tests.faults.soak import SOAK

ROOT = Path(__file__).parents[1]
PARTNERS = ("er", "scr")
"""Methods that are checked with every memory. Combinations of the others share their parts; a soak checks them too."""
CHECKED = [name for name in names() if SOAK or name in METHODS or name.rpartition("+")[0] in PARTNERS]
AT_ONCE = 10

REFUSAL = """
import torch
from tests.pretend_device import NAME, MixedDevices, pretending, register
register()
with pretending():
    there = torch.ones(3, device=NAME)
    assert there.device.type == NAME and float((there + 2.0).sum()) == 9
    assert there[torch.tensor([0, 2])].device.type == NAME and there.cpu().device.type == "cpu"
    try:
        there + torch.ones(3)
    except MixedDevices as error:
        print(error)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)


def test_the_pretended_device_refuses_to_be_mixed() -> None:
    assert run("-c", REFUSAL).stdout == "add got tensors of the CPU [(3,)] beside tensors of another device\n"


@pytest.mark.parametrize("start", range(0, len(CHECKED), AT_ONCE))
def test_methods_train_store_summarize_answer_and_are_restored_on_their_device(start: int) -> None:
    check_all("float32", CHECKED[start : start + AT_ONCE])


def test_a_memory_by_itself_stays_on_its_device() -> None:
    check_all("float32", ["SummaryMemory"])


def test_methods_compute_in_bf16_on_their_device() -> None:
    check_all("bf16", ["SummaryMemory", "scr+ssd", "dvc", "ocm", "lwf", "mir", "a-gem"])


def check_all(precision: str, methods: list[str]) -> None:
    done = run("-m", "tests.device_checks", precision, *methods)
    assert done.returncode == 0, f"{done.stdout.split()[-1:]}: {done.stderr[-2000:]}"
    assert done.stdout.split() == methods
