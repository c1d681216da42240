"""Write what answers as a file that other programs run: ONNX, or a program of torch.export.

Both take `images` (N,C,H,W), floats in [0,1], and give `scores` and `probabilities` (N,classes). Labels, the shape of
the images and how image files are to be fitted are inside, as JSON.
"""

from __future__ import annotations

import copy
import io
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engram.base.errors import InputError
from engram.deployment.predictor import AnsweringNet, Predictor
from engram.persistence.files import replace_file

FACTS = "engram"
"""Name of the JSON text inside, with the labels."""


class _WithProbabilities(nn.Module):
    """Gives the scores of images and their softmax."""

    def __init__(self, net: AnsweringNet) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.net(images)
        return scores, scores.softmax(1)


def export(predictor: Predictor, path: str | Path) -> None:
    """Write what answers to a file.

    Args:
        predictor: what answers.
        path: the file; it ends in .onnx (needs the packages onnx and onnxscript) or .pt2 (a program of torch.export).
    """
    file = Path(path).expanduser()
    if file.suffix not in (".onnx", ".pt2"):
        raise InputError(f"{file} is no file that can be exported to: let it end in .onnx or .pt2")
    net = copy.deepcopy(predictor.net).cpu().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    facts = json.dumps(
        {"labels": predictor.labels, "image_shape": predictor.image_shape, "fit": predictor.config["fit"]}
    )
    example = torch.zeros(2, *predictor.image_shape)
    shapes = {"images": {0: torch.export.Dim("batch", min=1, max=1 << 16)}}
    with _quiet():
        program = torch.export.export(_WithProbabilities(net).eval(), (example,), dynamic_shapes=shapes)
        content = _as_onnx(program, facts) if file.suffix == ".onnx" else _as_pt2(program, facts)
    replace_file(file, content)


def _as_pt2(program: Any, facts: str) -> bytes:
    written = io.BytesIO()
    torch.export.save(program, written, extra_files={FACTS: facts})
    return written.getvalue()


def _as_onnx(program: Any, facts: str) -> bytes:
    try:
        import onnx
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError("exporting to ONNX needs two packages: `pip install onnx onnxscript`") from error
    made = torch.onnx.export(
        program, input_names=["images"], output_names=["scores", "probabilities"], dynamo=True, verbose=False
    )
    assert made is not None, "it is returned if no file is named"
    model = made.model_proto
    entry = model.metadata_props.add()
    entry.key, entry.value = FACTS, facts
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch's exporters from reporting their own progress and their use of outdated functions."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "torch.export")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
