"""One thread a worker: parallel tests with several threads each are many times slower."""

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets, or a skip that says what is missing."""
    folder = os.environ.get("ENGRAM_DATA")
    if not folder:
        pytest.skip("ENGRAM_DATA is not set: no real data sets here")
    return Path(folder)
