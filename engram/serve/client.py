"""A small client. It needs nothing but Python and NumPy, and sends a batch again until it is acknowledged."""

from __future__ import annotations

import http.client
import io
import json
import secrets
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from typing import Any

import numpy as np

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds between tries while the server does not answer; each is twice the one before."""


class ServerError(RuntimeError):
    """The server refused a request. `status` is the status of HTTP.

    Args:
        status: the status of the answer; 0 if there was none.
        reason: what the server said.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{reason} (status {status})" if status else reason)
        self.status, self.reason = status, reason


class Client:
    """Teaches and asks a learner that is served.

    Args:
        url: address of the server, such as "http://127.0.0.1:8080".
        token: the token of the server, if it has one.
        learner: name of the learner; the first one if not given.
        patience: seconds for which requests are sent again while the server is away or its queue is full.
        timeout: seconds after which an answer is not waited for any longer.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        learner: str | None = None,
        *,
        patience: float = 60.0,
        timeout: float = 30.0,
    ) -> None:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"{url!r} is no address of a server: give http://HOST:PORT")
        self.base = url.rstrip("/") + (f"/learners/{urllib.parse.quote(learner, safe='')}" if learner else "")
        self.token, self.patience, self.timeout = token, patience, timeout

    def observe(self, images: Any, labels: Sequence[int | str], batch_id: str | None = None) -> dict[str, Any]:
        """Teach a batch and return its receipt: `id`, `position`, `duplicate` and `queued`.

        The batch is sent again, with the same id, until it is acknowledged. Then it is on the server's disk, and it is
        learned once.

        Args:
            images: (N,C,H,W), uint8, or float32 in [0,1].
            labels: one label per image.
            batch_id: id of the batch; a new one if not given.
        """
        query = urllib.parse.urlencode({"id": batch_id or secrets.token_hex(16)})
        return self._call(f"/observe?{query}", _packed(images, labels))

    def predict(self, images: Any) -> list[int | str]:
        """Return the likeliest label of each image."""
        return [each["label"] for each in self.ranked(images, 1)["predictions"]]

    def ranked(self, images: Any, top: int = 5, *, scores: bool = False) -> dict[str, Any]:
        """Return the `top` likeliest labels of each image with scores and probabilities, as the server answers."""
        query = urllib.parse.urlencode({"top": top, "scores": str(scores).lower()})
        return self._call(f"/predict?{query}", _packed(images))

    def status(self) -> dict[str, Any]:
        """Return what the learner is, how far it has come, and the bytes it holds."""
        return self._call("/status")

    def memory(self, first: int = 0, count: int = 100, *, pictures: bool = True) -> dict[str, Any]:
        """Return what the memory holds; pictures are base64 PNG files."""
        query = urllib.parse.urlencode({"first": first, "count": count, "pictures": str(pictures).lower()})
        return self._call(f"/memory?{query}")

    def wait(self, position: int, timeout: float = 600.0) -> dict[str, Any]:
        """Wait until predictions come from a learner that has learned this batch, and return the status."""
        deadline = time.monotonic() + timeout
        while (status := self.status())["published"] < position:
            if not status["healthy"]:
                raise ServerError(503, str(status["failure"]))
            if time.monotonic() > deadline:
                raise TimeoutError(f"batch {position} was not learned in {timeout:g} s: {status['queued']} wait")
            time.sleep(0.02)
        return status

    def _call(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        deadline, pause = time.monotonic() + self.patience, FIRST_PAUSE
        while True:
            try:
                answer: dict[str, Any] = json.loads(self._send(path, body))
                return answer
            except urllib.error.HTTPError as error:
                refusal, wait = _refusal(error)
                if wait is None or time.monotonic() + wait > deadline:
                    raise refusal from None
                time.sleep(wait)
            except (OSError, ValueError, http.client.HTTPException) as error:
                # The server is away, or was killed in the middle of an answer.
                if time.monotonic() + pause > deadline:
                    raise ServerError(0, f"the server does not answer: {error}") from error
                time.sleep(pause)
                pause = min(LONGEST_PAUSE, 2 * pause)

    def _send(self, path: str, body: bytes | None) -> bytes:
        headers = {"Content-Type": "application/octet-stream"} if body is not None else {}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(self.base + path, data=body, headers=headers)
        with urllib.request.urlopen(request, timeout=self.timeout) as answer:
            received: bytes = answer.read()
            return received


def _packed(images: Any, labels: Sequence[int | str] | None = None) -> bytes:
    """Return images and labels as an .npz file."""
    arrays: dict[str, Any] = {"images": np.ascontiguousarray(images)}
    if arrays["images"].dtype == np.float64:
        arrays["images"] = arrays["images"].astype(np.float32)
    if labels is not None:
        if len({isinstance(label, str) for label in labels}) > 1:
            raise ValueError("labels mix integers and strings: use one kind for the whole stream")
        arrays["labels"] = np.asarray(labels)
        if arrays["labels"].dtype.kind not in "iuU":
            raise ValueError(f"labels are {arrays['labels'].dtype}: give 64-bit integers or strings")
    written = io.BytesIO()
    np.savez(written, **arrays)
    return written.getvalue()


def _refusal(error: urllib.error.HTTPError) -> tuple[ServerError, float | None]:
    """Return what the server said, and the seconds after which to try again, if that helps."""
    with error:
        try:
            content = error.read()
        except (OSError, http.client.HTTPException):  # it was killed in the middle of this answer
            return ServerError(error.code, "the answer was cut off"), FIRST_PAUSE
    try:
        said = json.loads(content)
        return ServerError(error.code, str(said["detail"])), said.get("retry_after")
    except (ValueError, KeyError, TypeError, AttributeError):
        return ServerError(error.code, "the server gave no reason"), 1.0 if error.code == 503 else None
