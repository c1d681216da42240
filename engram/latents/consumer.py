"""A stream consumer that may see images through a frozen front."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from engram.base.batch import Batch, as_float
from engram.base.context import StepContext
from engram.base.errors import InputError
from engram.base.interfaces import SummarizingNet
from engram.latents.composition import LATENT_DEFAULTS, above_cut, require_latent_codec
from engram.latents.cutting import require_cut
from engram.latents.front import FrozenFront, split_net
from engram.memory import ExportedMemory, Store, make_store, parse_codec
from engram.methods import Composition
from engram.nets import Flattened, custom_backbone, theta_above
from engram.stream_consumer import StreamConsumer


class LatentConsumer(StreamConsumer[StepContext]):
    """Turns what arrives into latents, once, if a front of the net is frozen. The rest then takes them for images."""

    freeze: str | None = None
    """How much of the net is frozen: "all", "until:NAME", or None."""
    front: FrozenFront | None = None
    """The frozen part of the net, once the shape of the images is known."""

    def config(self) -> dict[str, Any]:
        return super().config() | ({} if self.freeze is None else {"freeze": self.freeze})

    def adopt(self, exported: ExportedMemory) -> None:
        if self.freeze is not None:
            raise InputError(
                "a learner with a frozen net keeps latents, and an exported memory holds images: give them to observe"
            )
        super().adopt(exported)

    def _begin_above(
        self, freeze: str | None, composition: Composition, given: Mapping[str, Any], asked: dict[str, Any]
    ) -> tuple[Composition, dict[str, Any]]:
        """Return the composition and the options asked for as they are above the cut, if there is one."""
        if freeze is None:
            return composition, asked
        if "net" not in self.custom_nets:
            raise InputError("freeze is about weights that are trained already: give net=module with your own")
        require_cut(self.custom_nets["net"], freeze)
        self.freeze = freeze
        asked = {**LATENT_DEFAULTS, **asked}
        if isinstance(asked["codec"], str):
            require_latent_codec(parse_codec(asked["codec"]))
        return above_cut(composition, given), asked

    def _own_backbone(self, image_shape: tuple[int, int, int]) -> Flattened | None:
        """Return the caller's own net as a backbone, or the part of it above the cut; None if it is ours."""
        own = self.custom_nets.get("net")
        if own is None or self.freeze is None:
            return custom_backbone(own, image_shape, self.device) if own else None
        front, above = split_net(own, self.freeze, image_shape, self.device, self.precision)
        self.add_state("front", front)
        self._above = above
        return above

    def _new_memory(self, image_shape: tuple[int, int, int]) -> Store:
        if self.front is None:
            return super()._new_memory(image_shape)
        options = {**self.options, "freeze": self.freeze}
        return make_store(options, self.front.shape, self._provides("stored logits"))

    def _new_theta(self, image_shape: tuple[int, int, int]) -> SummarizingNet:
        if self.front is None:
            return super()._new_theta(image_shape)
        if self.settings["theta"]:
            return super()._new_theta(self.front.shape)
        return theta_above(self._above, self.front.shape, self.rng["theta"])

    def _as_seen(self, images: Tensor) -> Tensor:
        """Return images as the net sees them: floats, or their latents."""
        x = as_float(images.to(self.device))
        return x if self.front is None else self.front.latents(x)

    def _batch(self, images: Tensor, labels: list[Any]) -> Batch:
        batch = super()._batch(images, labels)
        return batch if self.front is None else Batch(self.front.latents(batch.x), batch.y)
