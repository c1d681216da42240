"""Skip what needs Avalanche where it is not installed."""

import importlib
import importlib.util
from typing import Any

import pytest


@pytest.fixture(scope="session")
def avalanche() -> Any:
    """The package `engram.avalanche`, which imports Avalanche beside any build of torch; a skip if there is none."""
    if importlib.util.find_spec("avalanche") is None:
        pytest.skip("avalanche is not installed")
    return importlib.import_module("engram.avalanche")
