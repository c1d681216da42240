"""The slot store, its limit and codecs, the policies that fill it, and memories that travel."""

from engram.memory.budget import ByteLimit, Limit, SlotLimit
from engram.memory.codecs import AutoQuality, Codec, Compressed, Float32, Uint8, parse_codec
from engram.memory.encoding_anew import lower_quality
from engram.memory.exported import ExportedMemory, exported_from, fill_store
from engram.memory.making import make_store
from engram.memory.policies import Balanced, Dynamic, GradientSelection, NoMemory, Reservoir, ShapleyMemory
from engram.memory.store import Store
from engram.memory.total import bounded_bytes, divide_total, most_copies

__all__ = [
    "AutoQuality",
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
    "bounded_bytes",
    "divide_total",
    "exported_from",
    "fill_store",
    "lower_quality",
    "make_store",
    "most_copies",
    "parse_codec",
]
