"""What answers without learning: the net, the head that scores its features, and the labels of the classes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from engram.base.batch import as_float
from engram.base.context import StepContext
from engram.base.devices import resolve_device
from engram.base.errors import NonFiniteStateError
from engram.base.heads import ClassMeans, CosineHead, GrowingHead, GrowingLinear
from engram.base.initialization import at_most, materialize
from engram.base.interfaces import Classifier
from engram.base.part import Part
from engram.base.validation import Label, Labels, check_images, check_labels, likeliest_labels, require_shape
from engram.latents import FrozenFront, WholeNet, split_net
from engram.nets import ReducedResNet18, custom_backbone
from engram.persistence.checkpoint import CheckpointError, build_from_checkpoint, read_checkpoint, write_checkpoint
from engram.persistence.restore import RESTORING_SLACK, UnfitNetError, environment
from engram.persistence.state import Tree, unique_bytes
from engram.streams import ImageReading, read_if_files

SAVED_AS = "predictor"
"""Name of its entry in a checkpoint."""
HEADS: dict[str, type[GrowingHead]] = {"means": ClassMeans, "proxies": CosineHead, "logits": GrowingLinear}
"""Kinds of heads, by the name under which they are saved."""
BATCH = 128
"""Number of images that are answered together."""


class AnsweringNet(nn.Module):
    """Turns images (N,C,H,W), floats in [0,1], into scores (N,classes).

    Args:
        backbone: turns images into features.
        head: turns features into scores.
        mirror: whether the mean of an image's features and those of its mirror image is scored.
    """

    def __init__(self, backbone: nn.Module, head: GrowingHead, mirror: bool = False) -> None:
        super().__init__()
        self.backbone, self.head, self.mirror = backbone, head, mirror

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores of the images."""
        features = self.backbone(images)
        if self.mirror:
            features = (features + self.backbone(images.flip(-1))) / 2
        scores: Tensor = self.head(features)
        return scores


class Predictor(Part):
    """Answers as a learner did at one moment. It cannot learn, and is a fraction of the learner's size.

    Args:
        net: computes the scores.
        labels: the classes, in the order of the scores.
        image_shape: channels, height and width of the images.
        config: `net`, the settings of the backbone; `fit`, how images that are not square become so; and `freeze`, how
            much of the net was frozen.
    """

    def __init__(
        self, net: AnsweringNet, labels: list[Label], image_shape: tuple[int, int, int], config: Mapping[str, Any]
    ) -> None:
        self.to_device(next(net.parameters()).device)
        self.image_shape, self.config = image_shape, dict(config)
        self.add_state("net", net.eval().requires_grad_(False), count_as="net")
        self.add_state("labels", list(labels))
        self.net: AnsweringNet
        self.labels: list[Label]

    @property
    def reading(self) -> ImageReading:
        """How image files are read."""
        return ImageReading(size=self.image_shape[1], fit=self.config["fit"])

    @torch.no_grad()
    def scores(self, x: Any) -> Tensor:
        """Return scores (N,classes) in the order of `labels`; higher is likelier."""
        images = check_images(read_if_files(x, self.reading), self.image_shape, allow_empty=True)
        parts = as_float(images.to(self.device)).split(BATCH)
        return torch.cat([self.net(part) for part in parts])

    def predict(self, x: Any) -> Labels:
        """Return the likeliest label of each image, as `Learner.predict` does."""
        return likeliest_labels(self.scores(x), self.labels)

    def predict_proba(self, x: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the softmax of the scores, in the order of `labels`."""
        probabilities: np.ndarray[Any, np.dtype[np.float32]] = self.scores(x).softmax(1).cpu().numpy()
        return probabilities

    def save(self, path: str | Path) -> None:
        """Save it in a folder, for `load`."""
        self.require_finite()
        head = self.net.head
        kind = next(name for name, known in HEADS.items() if isinstance(head, known))
        width = self.net.backbone.feature_width
        config = self.config | {"head": kind, "width": width, "mirror": self.net.mirror}
        if isinstance(head, CosineHead):
            config["temperature"] = head.temperature
        tree = {"config": config, "image_shape": self.image_shape, "state": self.state()}
        write_checkpoint(Path(path).expanduser(), {"environment": environment(), SAVED_AS: tree, "extra": None})

    @classmethod
    def load(cls, path: str | Path, device: str = "auto", *, net: nn.Module | None = None) -> Predictor:
        """Return what `save(path, inference_only=True)` saved.

        Args:
            path: the folder.
            device: device to answer on.
            net: a module of the same shape, if the learner had a net of your own.
        """
        place = Path(path).expanduser()
        return build_from_checkpoint(
            place, lambda tree: _restored(tree, place, torch.device(resolve_device(device)), net)
        )


def answering_from(
    ctx: StepContext,
    classifier: Classifier,
    labels: list[Label],
    image_shape: tuple[int, int, int],
    config: Any,
    front: FrozenFront | None = None,
) -> Predictor:
    """Return what answers as a learner does now. It shares nothing with the learner.

    Args:
        ctx: context of the learner, with the model that answers.
        classifier: how the learner answers.
        labels: the classes it knows.
        image_shape: channels, height and width of its images.
        config: as `Predictor` takes it.
        front: the frozen part of its net, if there is one.
    """
    backbone = copy.deepcopy(classifier.answering_model(ctx).net.backbone)
    if front is not None:
        backbone = WholeNet(copy.deepcopy(front.net), backbone, ctx.model.feature_width)
    net = AnsweringNet(backbone, copy.deepcopy(classifier.head(ctx)), classifier.mirror)
    return Predictor(net, labels, image_shape, config)


def holds_predictor(path: Path) -> bool:
    """Return whether a folder was saved for inference only."""
    try:
        return SAVED_AS in read_checkpoint(path)
    except CheckpointError:
        return False


def _restored(tree: Tree, path: Path, device: torch.device, own: nn.Module | None) -> Predictor:
    try:
        saved = tree[SAVED_AS]
        config, shape = dict(saved["config"]), require_shape(tuple(saved["image_shape"]))
        custom = "own" in config["net"]
        if custom != (own is not None):
            hint = f"give one of the same shape as your {config['net'].get('own')}" if custom else "leave out net"
            raise UnfitNetError(f"{path} was saved with {'a net of your own' if custom else 'a built-in net'}: {hint}")
        with at_most(unique_bytes(saved["state"]) + RESTORING_SLACK):
            net = _skeleton(config, shape, device, own)
            kept = {"net": config["net"], "fit": config["fit"], "freeze": config.get("freeze")}
            predictor = Predictor(net, [], shape, kept)
            predictor.load_state(saved["state"])
        predictor.require_finite()
        check_labels(predictor.labels, len(predictor.labels), [])
        if predictor.scores(np.zeros((1, *shape), np.uint8)).shape[1] < len(predictor.labels):
            raise ValueError("it has fewer scores than labels")
    except (UnfitNetError, NonFiniteStateError):
        raise
    except Exception as error:  # a saved state may be wrong in any way
        raise CheckpointError(f"{path} holds nothing that was saved for inference only: {error}") from error
    return predictor


def _skeleton(
    config: Mapping[str, Any], shape: tuple[int, int, int], device: torch.device, own: nn.Module | None
) -> AnsweringNet:
    """Return a net of the saved shape, whose weights mean nothing yet."""
    if own is not None and config.get("freeze") is not None:
        front, above = split_net(copy.deepcopy(own), config["freeze"], shape, device, "float32")
        backbone: nn.Module = WholeNet(front.net, above, above.feature_width)
    elif own is not None:
        backbone = custom_backbone(copy.deepcopy(own), shape, device)
    else:
        backbone = materialize(lambda: ReducedResNet18(shape[0], shape[1], **config["net"]), torch.Generator(), device)
    width = int(config["width"])
    made: dict[str, Callable[[], GrowingHead]] = {
        "means": lambda: ClassMeans(torch.zeros(0, width)),
        "proxies": lambda: CosineHead(width, 0, float(config["temperature"])),
        "logits": lambda: GrowingLinear(width, 0),
    }
    head = made[config["head"]]()
    return AnsweringNet(backbone, head.to(device), config.get("mirror") is True)
