"""What an image takes and loses in each codec of the memory.

    python benchmarks/codecs.py --out results/codecs.json

Bytes of the encoded image and its distance from the original in decibels (peak signal to noise), means over training
images of CIFAR-100 (32 pixels a side), Tiny-ImageNet (64) and Mini-ImageNet (84).
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from engram.base.batch import as_float
from engram.memory import parse_codec
from engram.streams import load_dataset

LEAST = 1e-9
"""Mean squared errors below are rounding."""
CODECS = ("float32", "uint8", "jpeg(75)", "webp(50)", "webp(30)", "avif(70)", "avif(50)", "avif(35)", "avif(25)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--datasets", nargs="+", default=["cifar100", "tiny-imagenet", "mini-imagenet"])
    parser.add_argument("--images", type=int, default=2000)
    options = parser.parse_args()
    rows = []
    for dataset in options.datasets:
        chosen = torch.randperm(len(x := load_dataset(dataset).train_x), generator=torch.Generator().manual_seed(0))
        images = as_float(torch.as_tensor(x[chosen[: options.images].numpy()]))
        rows += [{"dataset": dataset, "pixels": images.shape[-1]} | measured(name, images) for name in CODECS]
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


def measured(name: str, images: Tensor) -> dict[str, Any]:
    """Return the mean bytes and the mean loss of images in a codec."""
    codec = parse_codec(name)
    records = codec.encode(images)
    errors = (codec.decode(records, tuple(images.shape[1:])) - images).square().flatten(1).mean(1)
    lost = mean(-10 * math.log10(max(error, LEAST)) for error in errors.tolist()) if errors.max() > LEAST else None
    found = {"codec": name, "images": len(images), "bytes": mean(map(len, records)), "decibels": lost}
    print(json.dumps(found), flush=True)
    return found


if __name__ == "__main__":
    main()
