"""What every request passes first: where it comes from, the token, the rate, and the size of its body."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from engram.serve.limits import RateLimiter, ServeLimits
from engram.serve.refusal import Refusal
from engram.serve.token import Token, host_of, is_loopback, is_own_origin

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN = {"/", "/healthz", "/docs", "/openapi.json"}
"""Paths that need no token: they say nothing about a learner."""
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Headers of every answer, unless the answer has its own."""
LONGEST_DISCARD, MOST_DISCARDED = 5.0, 64 << 20
"""Seconds and bytes for which the rest of a refused body is received, so that its sender reads why."""

_log = logging.getLogger(__name__)


class Guard:
    """An ASGI application around another one that refuses requests before they cost anything.

    Args:
        app: the application inside.
        limits: limits on requests.
        token: the token that requests must carry; None if only this machine can reach the server.
        refused: called for every refusal.
    """

    def __init__(
        self, app: ASGIApp, limits: ServeLimits, token: Token | None, refused: Callable[[], None] = lambda: None
    ) -> None:
        self.app, self.limits, self.token, self.refused = app, limits, token, refused
        self.rates = RateLimiter(limits["rate"])
        self.active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        body = _Body(receive, self.limits, invited="expect" not in headers)
        answer = _Answer(send, body)
        self.active += 1
        try:
            self._check(scope, headers)
            await self.app(scope, body.receive, answer)
        except Refusal as refusal:
            self.refused()
            await answer.refuse(refusal)
        except Exception:
            _log.exception("a request failed")
            await answer.refuse(Refusal(500, "the server failed to answer; its log says why"))
        finally:
            self.active -= 1

    def _check(self, scope: Scope, headers: dict[str, str]) -> None:
        if self.active > self.limits["most_requests"]:
            raise Refusal(503, "too many requests at the same time: try again", 1.0)
        self._check_origin(headers)
        self.rates.take(scope["client"][0] if scope.get("client") else "")
        if self.token and scope["path"] not in OPEN and not self.token.fits(headers.get("authorization", "")):
            raise Refusal(401, "the token is missing or wrong: send the header Authorization: Bearer TOKEN")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > int(self.limits["body_bytes"]):
            raise _too_large(self.limits)

    def _check_origin(self, headers: dict[str, str]) -> None:
        """Refuse what another site's page makes a browser send, and names that others made point to this machine."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if self.token is None and not is_loopback(host_of(host)):
            raise Refusal(403, "without a token, this server is only known as localhost or 127.0.0.1")
        if (origin is not None and not is_own_origin(origin, host)) or headers.get("sec-fetch-site") == "cross-site":
            raise Refusal(403, "requests from pages of other sites are refused")


class _Body:
    """The body of a request. Receiving it ends in a `Refusal` if it is too large or too slow.

    Args:
        receive: how the server hands over the body.
        limits: limits on requests.
        invited: the client sends the body without waiting for a word of the server.
    """

    def __init__(self, receive: Receive, limits: ServeLimits, invited: bool) -> None:
        self._receive, self._limits, self._invited = receive, limits, invited
        self._deadline = time.monotonic() + limits["body_seconds"]
        self._taken, self._whole = 0, False

    async def receive(self) -> Message:
        """Return the next part of the body."""
        if self._whole:
            return await self._receive()
        self._invited = True
        try:
            message = await asyncio.wait_for(self._receive(), self._deadline - time.monotonic())
        except TimeoutError:
            raise Refusal(408, f"the body took more than {self._limits['body_seconds']:g} s to arrive") from None
        self._taken += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self._taken > int(self._limits["body_bytes"]):
            raise _too_large(self._limits)
        return message

    async def discard(self) -> None:
        """Throw away what is still to come, within bounds. A client that cannot send does not read the answer."""
        deadline, most = time.monotonic() + LONGEST_DISCARD, self._taken + MOST_DISCARDED
        while self._invited and not self._whole and self._taken < most:
            try:
                message = await asyncio.wait_for(self._receive(), deadline - time.monotonic())
            except TimeoutError:
                return
            self._taken += len(message.get("body", b""))
            self._whole = not message.get("more_body", False)


def _too_large(limits: ServeLimits) -> Refusal:
    return Refusal(413, f"a body may have at most {limits['body_bytes']:,} bytes: send fewer or smaller images")


class _Answer:
    """Sends an answer with the headers that all have, and remembers whether it has begun.

    Args:
        send: how the server takes the answer.
        body: the body of the request; what is left of it is thrown away first.
    """

    def __init__(self, send: Send, body: _Body) -> None:
        self._send, self._body, self._begun = send, body, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._begun = True
            await self._body.discard()
            present = {name.lower() for name, _ in message["headers"]}
            more = [(name.encode(), text.encode()) for name, text in HEADERS.items() if name.encode() not in present]
            message = {**message, "headers": [*message["headers"], *more]}
        await self._send(message)

    async def refuse(self, refusal: Refusal) -> None:
        """Answer with a refusal, unless an answer has begun."""
        if self._begun:
            return
        body = json.dumps(refusal.body()).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
        pairs = [(name.encode(), text.encode()) for name, text in (headers | refusal.headers()).items()]
        await self({"type": "http.response.start", "status": refusal.status, "headers": pairs})
        await self._send({"type": "http.response.body", "body": body})
