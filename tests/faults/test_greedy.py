"""Whatever a small file asks for is refused before it is allocated: in less than 5 seconds and 500 megabytes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.greedy import CASES


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, float, float]]:
    command = [sys.executable, "-m", "tests.faults.greedy", str(tmp_path_factory.mktemp("greedy"))]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    measured: dict[str, tuple[str, float, float]] = json.loads(done.stdout.splitlines()[-1])
    return measured


@pytest.mark.parametrize("name", list(CASES))
def test_greedy_files_are_refused_at_once(name: str, figures: dict[str, tuple[str, float, float]]) -> None:
    outcome, seconds, megabytes = figures[name]
    assert outcome == "refused"
    assert seconds < 5
    assert megabytes < 500
