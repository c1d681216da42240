"""Answers to requests for predictions, from a copy of a learner."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import torch

from engram.base.validation import Label
from engram.serve.batches import Array
from engram.serve.metrics import Metrics
from engram.serve.published import Published


def answered(published: Published, images: Array, top: int, metrics: Metrics, *, all_scores: bool) -> dict[str, Any]:
    """Return the likeliest labels of each image.

    Args:
        published: the copy that answers.
        images: (N,C,H,W).
        top: number of labels for each image.
        metrics: where images and time are counted.
        all_scores: return the scores of all classes too.
    """
    began = time.monotonic()
    learner = published.learner
    scores = learner.scores(images)[:, : len(learner.labels)].cpu()
    answer = {"position": published.position, "predictions": _ranked(scores, learner.labels, top)}
    if all_scores:
        rows = [[value if math.isfinite(value) else None for value in row] for row in scores.tolist()]
        answer |= {"labels": list(learner.labels), "scores": rows}
    metrics.count("images_predicted", len(images))
    metrics.time("predict", time.monotonic() - began)
    return answer


def _ranked(scores: torch.Tensor, labels: Sequence[Label], top: int) -> list[dict[str, Any]]:
    """Return for each row of scores its likeliest labels, each with score and probability."""
    values, order = scores.topk(min(top, scores.shape[1]), dim=1)
    shares = scores.softmax(1).gather(1, order)
    return [
        {
            "label": labels[indices[0]],
            "top": [
                {"label": labels[index], "score": value, "probability": share}
                for index, value, share in zip(indices, row, probabilities, strict=True)
                if math.isfinite(value)
            ],
        }
        for indices, row, probabilities in zip(order.tolist(), values.tolist(), shares.tolist(), strict=True)
    ]
