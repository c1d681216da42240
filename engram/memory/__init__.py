"""The slot store, its limit and codecs, the policies that fill it, and memories that travel."""

from engram.memory.budget import ByteLimit, Limit, SlotLimit
from engram.memory.codecs import Codec, Compressed, Float32, Uint8, parse_codec
from engram.memory.exported import ExportedMemory, exported_from, fill_store
from engram.memory.policies import Balanced, Dynamic, GradientSelection, NoMemory, Reservoir, ShapleyMemory
from engram.memory.store import Store, make_store

__all__ = [
    "Balanced",
    "ByteLimit",
    "Codec",
    "Compressed",
    "Dynamic",
    "ExportedMemory",
    "Float32",
    "GradientSelection",
    "Limit",
    "NoMemory",
    "Reservoir",
    "ShapleyMemory",
    "SlotLimit",
    "Store",
    "Uint8",
    "exported_from",
    "fill_store",
    "make_store",
    "parse_codec",
]
