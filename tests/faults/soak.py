"""How much of a thing: a little in every test run, a lot by `make soak`."""

import os

SOAK = bool(os.environ.get("ENGRAM_SOAK"))


def amount(usual: int, soak: int) -> int:
    return soak if SOAK else usual
