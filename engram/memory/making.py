"""Make a memory as options ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engram.base.errors import InputError
from engram.memory.budget import ByteLimit, Limit, SlotLimit
from engram.memory.codecs import parse_codec
from engram.memory.latent import Latent8
from engram.memory.store import SLOT_BYTES, Store


def make_limit(options: Mapping[str, Any], shape: tuple[int, int, int], keeps_logits: bool = False) -> Limit:
    """Return the limit of a memory. A limit in bytes becomes one in images if every image takes the same bytes.

    Args:
        options: memory_size, memory_bytes or total_bytes, and codec.
        shape: channels, height and width of an image.
        keeps_logits: whether records hold logits too, whose number differs.
    """
    codec, memory_bytes = parse_codec(options["codec"]), options["memory_bytes"]
    if options.get("total_bytes") is not None:
        return ByteLimit(options["total_bytes"], SLOT_BYTES)
    if memory_bytes is None:
        return SlotLimit(options["memory_size"] or 0)
    each = None if keeps_logits else codec.record_bytes(shape)
    shared = codec.shared_bytes(shape) if isinstance(codec, Latent8) else 0
    if shared and each is not None and each + shared > memory_bytes:
        raise InputError(
            f"memory_bytes is {memory_bytes}: not even one latent, {each} bytes as {codec.name} and {shared} for the "
            "scale, fits"
        )
    if each is None or each > memory_bytes:
        return ByteLimit(memory_bytes - shared)
    return SlotLimit((memory_bytes - shared) // each)


def make_store(options: Mapping[str, Any], shape: tuple[int, int, int], keeps_logits: bool = False) -> Store:
    """Return an empty store.

    Args:
        options: the options of `MemoryOptions`, by name; and `freeze` if it holds latents.
        shape: channels, height and width of an image, or of its latents.
        keeps_logits: whether it keeps logits with its images.
    """
    keep_originals, latents = options.get("keep_originals", False), options.get("freeze") is not None
    limit, codec = make_limit(options, shape, keeps_logits), parse_codec(options["codec"])
    return Store(limit, shape, codec, keep_originals, keeps_logits, latents)
