"""What a request may ask for, and how often."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict, cast

from engram.base.settings import Count, Default, Positive, resolve
from engram.options import ByteSize
from engram.serve.refusal import Refusal

MOST_CLIENTS = 1024
"""Addresses whose rate is kept; of more, the one that was silent for longest is forgotten."""
BURST_SECONDS = 2.0
"""Requests that may come at once, in seconds of the rate."""


class ServeLimits(TypedDict, total=False):
    """Limits on requests."""

    body_bytes: Annotated[ByteSize, Default(8 << 20), "Bytes of a request's body, such as 8MiB."]
    body_seconds: Annotated[Positive, Default(30.0), "Seconds in which a request's body must have arrived."]
    most_images: Annotated[Count, Default(256), "Images in a request."]
    most_side: Annotated[Count, Default(256), "Pixels per side of an image in an array."]
    most_pixels: Annotated[Count, Default(1 << 25), "Pixels of all pictures (PNG, JPEG) of a request, before scaling."]
    most_classes: Annotated[Count, Default(1000), "Classes that a learner may be taught."]
    most_queued: Annotated[Count, Default(64), "Batches that wait to be learned; further ones are answered with 429."]
    most_requests: Annotated[Count, Default(32), "Requests that are answered at the same time."]
    rate: Annotated[Positive, Default(500.0), "Requests per second of one address."]


def resolve_limits(given: Mapping[str, Any]) -> ServeLimits:
    """Return all limits, checked, with defaults for those not given."""
    return cast(ServeLimits, resolve(ServeLimits, given))


class RateLimiter:
    """Lets every client make `rate` requests per second, and a burst of two seconds' worth.

    Args:
        rate: requests per second.
    """

    def __init__(self, rate: float) -> None:
        self.rate, self.burst = rate, max(1.0, BURST_SECONDS * rate)
        self._lock = threading.Lock()
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, now: float | None = None) -> None:
        """Count one request of a client, or raise a `Refusal` with the time to retry."""
        now = time.monotonic() if now is None else now
        with self._lock:
            left, since = self._clients.pop(client, (self.burst, now))
            left = min(self.burst, left + (now - since) * self.rate)
            allowed = left >= 1
            self._clients[client] = (left - 1 if allowed else left, now)
            while len(self._clients) > MOST_CLIENTS:
                self._clients.popitem(last=False)
        if not allowed:
            raise Refusal(429, f"more than {self.rate:g} requests per second: send fewer", (1 - left) / self.rate)
