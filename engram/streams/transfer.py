"""One request to a server, over https only, that ends in bounded time however slowly the server answers.

The network is read in a thread of its own. So the caller can give up at any moment: also while the server sends its
headers byte by byte.
"""

from __future__ import annotations

import http
import http.client
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Any

BLOCK = 1 << 20
"""Number of bytes that are read at a time."""
TIMEOUT = 30.0
"""Seconds to wait for the server: for its whole headers, and for the next bytes."""
LEAST_RATE = 20_000
"""Least number of bytes per second, over `TIMEOUT` seconds. So a transfer ends within the time that its bytes take at
this rate, and `TIMEOUT`."""
SCHEMES = ("https",)
"""Kinds of addresses that may be read, also after a redirection."""


class BrokenOff(Exception):
    """Raised when a transfer ended too early or was too slow."""


class _SameScheme(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: urllib.request.Request, *facts: Any) -> urllib.request.Request | None:
        _require_scheme(facts[-1])
        return super().redirect_request(req, *facts)


def _require_scheme(url: str) -> None:
    if url.partition(":")[0].lower() not in SCHEMES:
        raise urllib.error.URLError(f"{url[:100]!r} is not an address with {' or '.join(SCHEMES)}")


class Transfer:
    """A request for a file from byte `start` on.

    Args:
        url: address of the file.
        start: number of bytes at its beginning that are not needed.
    """

    def __init__(self, url: str, start: int) -> None:
        self.request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
        self.ended = threading.Event()
        self.arrived: queue.Queue[Any] = queue.Queue(maxsize=4)
        self.thread = threading.Thread(target=self._receive, daemon=True)
        self.began = time.monotonic()
        self.thread.start()
        self.status: int | None = None

    def resumed(self) -> bool:
        """Wait for the headers, and return whether the server sends the file from the first needed byte on."""
        if self.status is None:
            self.status = self._next(self.began + TIMEOUT)
        return self.status == http.HTTPStatus.PARTIAL_CONTENT

    def blocks(self, count: int) -> Iterator[bytes]:
        """Yield up to `count` bytes in blocks. Raises `BrokenOff` if the server is slower than `LEAST_RATE`."""
        self.resumed()
        began, had, needed = time.monotonic(), 0, TIMEOUT * LEAST_RATE
        while had < count and (block := self._next(began + TIMEOUT)):
            yield block[: count - had]
            had += len(block)
            if had >= needed:
                began, needed = time.monotonic(), had + TIMEOUT * LEAST_RATE

    def end(self) -> None:
        """Stop reading. The thread ends when it next hears from the server, or after `TIMEOUT`."""
        self.ended.set()

    def _next(self, deadline: float) -> Any:
        """Return what arrives next, or raise the error that the thread met."""
        try:
            found = self.arrived.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise BrokenOff from None
        if isinstance(found, Exception):
            raise found
        return found

    def _receive(self) -> None:
        try:
            _require_scheme(self.request.full_url)
            opener = urllib.request.build_opener(_SameScheme)
            with opener.open(self.request, timeout=TIMEOUT) as response:
                self._deliver(response.status)
                while not self.ended.is_set() and (block := _received(response)):
                    self._deliver(block)
            self._deliver(b"")
        except urllib.error.URLError as error:
            self._deliver(error)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._deliver(BrokenOff(str(error)))

    def _deliver(self, found: Any) -> None:
        while not self.ended.is_set():
            with suppress(queue.Full):
                self.arrived.put(found, timeout=0.1)
                break


def _received(response: IO[bytes]) -> bytes:
    """Return the bytes that are there, at least one unless the file ended."""
    content: bytes = response.read1(BLOCK)  # type: ignore[attr-defined]
    return content
