"""Which stream images enter the memory, and which leave it."""

from engram.memory.policies.aser import ShapleyMemory
from engram.memory.policies.balanced import Balanced
from engram.memory.policies.dynamic import Dynamic
from engram.memory.policies.gss import GradientSelection
from engram.memory.policies.none import NoMemory
from engram.memory.policies.reservoir import Reservoir

__all__ = ["Balanced", "Dynamic", "GradientSelection", "NoMemory", "Reservoir", "ShapleyMemory"]
