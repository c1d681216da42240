"""What an image takes and loses in each codec of the memory.

    python benchmarks/codecs.py --out results/codecs.json

Bytes of the encoded image and its distance from the original in decibels (peak signal to noise), means over training
images of CIFAR-100.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from statistics import mean

import torch

from engram.base.batch import as_float
from engram.memory import parse_codec
from engram.streams import load_dataset

CODECS = ("float32", "uint8", "jpeg(75)", "webp(50)", "webp(30)", "avif(45)", "avif(35)", "avif(25)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dataset", default="cifar100")
    parser.add_argument("--images", type=int, default=2000)
    options = parser.parse_args()
    images = as_float(torch.as_tensor(load_dataset(options.dataset).train_x[: options.images]))
    shape = tuple(images.shape[1:])
    rows = []
    for name in CODECS:
        codec = parse_codec(name)
        records = codec.encode(images)
        errors = (codec.decode(records, shape) - images).square().flatten(1).mean(1)
        lost = mean(-10 * math.log10(error) for error in errors.tolist()) if errors.max() > 1e-12 else None
        rows.append({"codec": name, "images": len(images), "bytes": mean(map(len, records)), "decibels": lost})
        print(json.dumps(rows[-1]), flush=True)
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
