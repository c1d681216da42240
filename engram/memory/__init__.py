"""The slot store, its codecs and the policies that fill it."""

from engram.memory.codec import Codec, Float32
from engram.memory.dynamic import Dynamic
from engram.memory.reservoir import Reservoir
from engram.memory.store import Store

__all__ = ["Codec", "Dynamic", "Float32", "Reservoir", "Store"]
