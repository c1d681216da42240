"""Small image data sets on disk, in the layouts data sets come in."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed: int, size: int = 8, kind: str = "JPEG", mode: str = "RGB") -> bytes:
    """An image file; the same seed gives the same bytes."""
    shape = (size, size, 3) if mode == "RGB" else (size, size)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def pack(path: Path, files: dict[str, bytes], prefix: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(prefix + name, content)
    return path


def tiny_files(classes: int = 3, train: int = 12, test: int = 2) -> dict[str, bytes]:
    """Tiny-ImageNet in its publisher's layout."""
    wnids = [f"n{1000 + each:08d}" for each in range(classes)]
    files = {
        f"train/{wnid}/images/{wnid}_{index}.JPEG": picture(100 * label + index, 64)
        for label, wnid in enumerate(wnids)
        for index in range(train)
    }
    lines = []
    for number in range(classes * test):
        files[f"val/images/val_{number}.JPEG"] = picture(9000 + number, 64)
        lines.append(f"val_{number}.JPEG\t{wnids[number % classes]}\t0\t0\t63\t63")
    words = "".join(f"{wnid}\tword{label % 2}, other\n" for label, wnid in enumerate(wnids))
    return files | {
        "wnids.txt": "\n".join(reversed(wnids)).encode(),
        "words.txt": words.encode(),
        "val/val_annotations.txt": "\n".join(lines).encode(),
    }


def mini_files(classes: int = 4, images: int = 12) -> dict[str, bytes]:
    """Mini-ImageNet as images/ and three csv files; the last two classes are those of val.csv and test.csv."""
    rows: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    files = {}
    for label in range(classes):
        wnid = f"n{2000 + label:08d}"
        split = {classes - 1: "test", classes - 2: "val"}.get(label, "train")
        for index in range(images):
            name = f"{wnid}{index:08d}.jpg"
            files[f"images/{name}"] = picture(100 * label + index, 84)
            rows[split].append(f"{name},{wnid}")
    for split, lines in rows.items():
        files[f"{split}.csv"] = "\n".join(["filename,label", *lines]).encode()
    return files
