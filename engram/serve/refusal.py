"""Why a request is refused: a status of HTTP, a reason, and when to try again."""

from __future__ import annotations

import math


class Refusal(Exception):
    """A request that is refused. Nothing was changed by it.

    Args:
        status: the status of the answer, 4xx or 503.
        reason: what was wrong, what is expected, and what to do.
        retry_after: seconds after which the same request may succeed, if time helps.
    """

    def __init__(self, status: int, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.retry_after = status, reason, retry_after

    def body(self) -> dict[str, str | float]:
        """Return the answer's JSON."""
        waiting = {} if self.retry_after is None else {"retry_after": round(self.retry_after, 3)}
        return {"detail": self.reason} | waiting

    def headers(self) -> dict[str, str]:
        """Return the answer's headers; the time to retry is in whole seconds there."""
        return {} if self.retry_after is None else {"retry-after": str(max(1, math.ceil(self.retry_after)))}
