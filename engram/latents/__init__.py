"""Learning above a cut: a front of the net is frozen, and everything behind it sees its outputs instead of images."""

from engram.latents.composition import LATENT_DEFAULTS, above_cut, require_latent_codec
from engram.latents.cutting import cut, require_cut
from engram.latents.front import FrozenFront, WholeNet, split_net

__all__ = [
    "LATENT_DEFAULTS",
    "FrozenFront",
    "WholeNet",
    "above_cut",
    "cut",
    "require_cut",
    "require_latent_codec",
    "split_net",
]
