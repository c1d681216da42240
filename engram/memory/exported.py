"""A memory outside a learner: pictures to look at, a table of labels, and the exact values.

A folder holds one PNG per image (values clamped), `labels.csv` and `memory.safetensors`. Only the last is read again.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
from PIL import Image
from torch import Tensor

from engram.base.errors import InputError
from engram.base.escaping import for_csv
from engram.base.naming import class_name
from engram.base.part import LARGEST_COUNT
from engram.base.validation import Label, check_labels, require_shape
from engram.memory.codecs import Codec, parse_codec, to_bytes
from engram.memory.store import Store
from engram.persistence.building import lock_folder, remove_abandoned, remove_lock
from engram.persistence.parsing import parse_json, read_safetensors, safetensors_facts

FORMAT = "1"
FILE = "memory.safetensors"
LARGEST = 1 << 32
"""Bytes a file that is read may have."""
UNFINISHED = ".unfinished-"
"""What follows its name in the names of folders in which an export is written."""


@dataclass(frozen=True, eq=False)
class ExportedMemory:
    """The content of a memory.

    Args:
        images: (N,C,H,W) float32; summaries may leave [0,1].
        labels: one label per image, all int or all str.
        claimed: whether each image was in a slot that its class owns.
        summary: whether summarizing had changed each image.
        seen: number of stream images that the memory had been offered.
        codec: name of the codec, if the images were stored compressed, so that encoding them again would change them.
        records: the images as that codec encoded them.
    """

    images: Tensor
    labels: list[Label]
    claimed: Tensor
    summary: Tensor
    seen: int
    codec: str | None = None
    records: Sequence[Tensor] = ()

    def __post_init__(self) -> None:
        images, count = self.images, len(self.images)
        if images.ndim != 4 or images.dtype != torch.float32 or not count or not torch.isfinite(images).all():
            raise InputError(f"images {tuple(images.shape)} of {images.dtype}: need (N,C,H,W) finite float32, N ≥ 1")
        require_shape(tuple(images.shape[1:]))
        object.__setattr__(self, "labels", check_labels(self.labels, count, []))
        for name in ("claimed", "summary"):
            flags: Tensor = getattr(self, name)
            if flags.dtype != torch.bool or flags.shape != (count,):
                raise InputError(f"{name} is {flags.dtype} {tuple(flags.shape)}: need one truth value an image")
        if not isinstance(self.seen, int) or not 0 <= self.seen < LARGEST_COUNT:
            raise InputError(f"seen is {str(self.seen)[:40]}: need a count of images")
        if self.codec is not None:
            _require_records(parse_codec(self.codec), self.records, count, self.image_shape)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return require_shape(tuple(self.images.shape[1:]))

    def __len__(self) -> int:
        return len(self.labels)

    def encoded(self, memory: Store) -> list[Tensor]:
        """Return the images as records of a memory; the stored records if they are of the same codec."""
        same = self.codec == memory.codec.name
        return memory.completed(list(self.records) if same else memory.encode(self.images))

    def write(self, folder: str | Path, names: Sequence[str] = ()) -> None:
        """Write a new folder, as a whole or not at all.

        Args:
            folder: path of the folder; it must not exist.
            names: names of the classes, if labels are numbers.
        """
        folder = Path(folder).expanduser()
        if folder.exists():
            raise InputError(f"{folder} exists already: choose another folder")
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = f".{folder.name}{UNFINISHED}"
        remove_abandoned(folder.parent, unfinished)
        partial = Path(tempfile.mkdtemp(prefix=unfinished, dir=folder.parent))
        try:
            with lock_folder(partial):
                self._write_into(partial, names)
                partial.chmod(0o755)
                remove_lock(partial)
            os.replace(partial, folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise

    def _write_into(self, folder: Path, names: Sequence[str]) -> None:
        table = io.StringIO()
        rows = csv.writer(table, lineterminator="\n")
        rows.writerow(["file", "label", "name", "claimed", "summary"])
        flags = zip(self.claimed.int().tolist(), self.summary.int().tolist(), strict=True)
        for index, (pixels, label, (claimed, summary)) in enumerate(
            zip(to_bytes(self.images), self.labels, flags, strict=True)
        ):
            file = f"{index:05}.png"
            array = pixels.permute(1, 2, 0).numpy()
            Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array).save(folder / file)
            rows.writerow([file, for_csv(label), for_csv(class_name(label, names)), claimed, summary])
        (folder / "labels.csv").write_text(table.getvalue(), encoding="utf-8")
        tensors = {"images": self.images.contiguous(), "claimed": self.claimed, "summary": self.summary}
        facts = {"format": FORMAT, "labels": json.dumps(self.labels), "seen": str(self.seen)}
        if self.codec is not None:
            facts["codec"] = self.codec
            tensors |= {"records": torch.cat(list(self.records)), "sizes": torch.tensor(list(map(len, self.records)))}
        safetensors.torch.save_file(tensors, folder / FILE, metadata=facts)

    @classmethod
    def read(cls, folder: str | Path) -> ExportedMemory:
        """Return the memory that `write` wrote to a folder."""
        path = Path(folder).expanduser() / FILE
        if not path.exists() and not path.is_symlink():
            raise InputError(f"{folder} holds no exported memory: {FILE} is not there")
        try:
            content = read_safetensors(path, LARGEST)
            found = safetensors.torch.load(content)
            facts = safetensors_facts(content)
            if facts.get("format") != FORMAT:
                raise InputError(f"it is of format {facts.get('format')}, this version reads {FORMAT}")
            tensors = {name: found[name] for name in ("images", "claimed", "summary")}
            sizes = found["sizes"].tolist() if "codec" in facts else []
            if len(sizes) > len(tensors["images"]):
                raise InputError(f"{len(sizes)} records for {len(tensors['images'])} images: need one each")
            return cls(
                labels=parse_json(facts["labels"].encode()),
                seen=int(facts["seen"]),
                codec=facts.get("codec"),
                records=[part.clone() for part in found["records"].split(sizes)] if sizes else [],
                **tensors,
            )
        except Exception as error:  # a damaged or hostile file may be wrong in any way
            raise InputError(f"{path} is not a memory this version can read: {error}") from error


def fill_store(
    memory: Store, exported: ExportedMemory, labels: Sequence[int], generator: torch.Generator, *, claims: bool
) -> None:
    """Put everything of an exported memory into an empty store.

    Args:
        memory: the store.
        exported: what it gets.
        labels: class indices of the images, as the store's owner numbers them.
        generator: source of the priorities of unclaimed images where bytes are the limit. They are drawn as those of
            images that have stayed until now among all that were seen.
        claims: whether classes own slots of this store.
    """
    owned = exported.claimed & claims
    unowned = len(exported) - int(owned.sum())
    least = 1 - unowned / max(unowned, exported.seen, 1)
    for index, record in enumerate(exported.encoded(memory)):
        priority = math.inf if owned[index] else memory.limit.draw_priority(generator, least)
        slot = memory.put_record(memory.size, record, labels[index], priority)
        if slot is not None:
            memory.summary[slot] = exported.summary[index]
            if owned[index]:
                memory.claim(slot)
    memory.seen = exported.seen


def exported_from(memory: Store, labels: Sequence[Label]) -> ExportedMemory:
    """Return the content of a store; `labels` are the labels of its classes by index."""
    if not memory.size:
        raise InputError("the memory is empty: there is nothing to export")
    if memory.latents:
        raise InputError("the memory holds latents of a frozen net, no images: save the learner itself instead")
    batch = memory.read(memory.filled())
    compressed = memory.codec.record_bytes(memory.shape) is None
    return ExportedMemory(
        images=batch.x.cpu(),
        labels=[labels[index] for index in batch.y.tolist()],
        claimed=memory.claimed[: memory.size].clone(),
        summary=memory.summary[: memory.size].clone(),
        seen=memory.seen,
        codec=memory.codec.name if compressed else None,
        records=memory.encoded_images() if compressed else (),
    )


def _require_records(codec: Codec, records: Sequence[Tensor], count: int, shape: tuple[int, int, int]) -> None:
    if len(records) != count or any(record.dtype != torch.uint8 or record.ndim != 1 for record in records):
        raise InputError(f"{len(records)} records for {count} images: need one string of bytes an image")
    try:
        codec.decode(records, shape)
    except Exception as error:  # a decoder may fail in any way
        raise InputError(f"a record is no {codec.name} image {shape} (C,H,W): {error}") from error
