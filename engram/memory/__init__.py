"""The slot store, its codecs and the policies that fill it."""

from engram.memory.aser import ShapleyMemory
from engram.memory.codec import Codec, Compressed, Float32, Uint8, parse_codec
from engram.memory.dynamic import Dynamic
from engram.memory.exported import ExportedMemory, exported_from
from engram.memory.gss import GradientSelection
from engram.memory.none import NoMemory
from engram.memory.reservoir import Reservoir, draw_priority
from engram.memory.store import Store, limited_store

__all__ = [
    "Codec",
    "Compressed",
    "Dynamic",
    "ExportedMemory",
    "Float32",
    "GradientSelection",
    "NoMemory",
    "Reservoir",
    "ShapleyMemory",
    "Store",
    "Uint8",
    "draw_priority",
    "exported_from",
    "limited_store",
    "parse_codec",
]
