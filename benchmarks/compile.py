"""Does torch.compile make a training step faster on this processor?

Forward and backward pass of the reduced ResNet-18 on the images of one step of er-ema (74 views of 24 pixels) and of
one view of scr (110 images of 32 pixels), one thread. Medians of the processor's time, plain and compiled in turn.

    python benchmarks/compile.py --out results/compile.json
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from engram.base.precision import computing_in
from engram.nets import ReducedResNet18

STEPS = {"er-ema": (74, 24), "scr": (110, 32)}
"""Images of a pass, and their pixels per side."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repetitions", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        {"step": name, "precision": precision} | measured(count, size, precision, options.repetitions)
        for name, (count, size) in STEPS.items()
        for precision in ("float32", "bf16")
    ]
    options.out.write_text(json.dumps({"torch": torch.__version__, "steps": rows}, indent=1) + "\n")


def measured(count: int, size: int, precision: Any, repetitions: int) -> dict[str, float]:
    """Return the seconds of a pass, plain and compiled, and those of compiling."""
    net = ReducedResNet18(3, 32).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = torch.rand(count, 3, size, size)
    compiled = torch.compile(net)
    began = time.monotonic()
    seconds_of(compiled, images, precision)
    compiling = time.monotonic() - began
    spent: dict[str, list[float]] = {"plain": [], "compiled": []}
    for _ in range(repetitions):
        spent["plain"].append(seconds_of(net, images, precision))
        spent["compiled"].append(seconds_of(compiled, images, precision))
    found = {name: round(median(times), 4) for name, times in spent.items()} | {"compiling": round(compiling, 1)}
    print(json.dumps(found), flush=True)
    return found


def seconds_of(net: nn.Module, images: Tensor, precision: Any) -> float:
    """Return the processor's time of a forward and a backward pass."""
    began = time.process_time()
    with computing_in(precision, images.device):
        features = net(images)
    features.float().square().mean().backward()
    return time.process_time() - began


if __name__ == "__main__":
    main()
