"""What every request passes: token, address, rate, and the size and time of its body."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from engram.base.errors import InputError
from engram.serve.guard import Guard
from engram.serve.limits import RateLimiter, resolve_limits
from engram.serve.refusal import Refusal
from engram.serve.token import Token, is_own_origin, read_token, require_safe_binding
from tests.serve.serving import SECRET

LOCAL = {"host": "127.0.0.1:8080"}


class Exchange:
    """One request to a guard around an application that answers with the length of the body."""

    def __init__(self, parts: list[bytes], headers: dict[str, str] = LOCAL, path: str = "/observe") -> None:
        self.parts, self.received = list(parts), 0
        self.sent: list[dict[str, Any]] = []
        self.reached = False
        pairs = [(name.encode(), text.encode("latin-1")) for name, text in headers.items()]
        self.scope: Any = {"type": "http", "path": path, "headers": pairs, "client": ("127.0.0.1", 5)}

    async def receive(self) -> Any:
        if not self.parts:
            await asyncio.sleep(60)
        self.received += 1
        body = self.parts.pop(0)
        return {"type": "http.request", "body": body, "more_body": body != b""}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.reached = True
        total, more = 0, True
        while more:
            message = await receive()
            total, more = total + len(message["body"]), message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps({"total": total}).encode()})

    def run(self, token: Token | None = None, guard: Guard | None = None, **limits: Any) -> int:
        guard = guard or Guard(self.app, resolve_limits({"body_bytes": 100} | limits), token)
        asyncio.run(guard(self.scope, self.receive, self.send))
        status: int = self.sent[0]["status"]
        return status

    @property
    def answer(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.sent[-1]["body"])
        return found


def test_a_request_within_the_limits_passes_and_gets_safe_headers() -> None:
    exchange = Exchange([b"x" * 60, b"x" * 40, b""])
    assert exchange.run() == 200
    assert exchange.answer == {"total": 100}
    headers = dict(exchange.sent[0]["headers"])
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert headers[b"cache-control"] == b"no-store"
    assert headers[b"content-security-policy"].startswith(b"default-src 'none'")


def test_a_body_that_says_it_is_too_large_never_reaches_the_application() -> None:
    exchange = Exchange([b"x" * 101, b""], LOCAL | {"content-length": "101"})
    assert exchange.run() == 413
    assert not exchange.reached
    assert exchange.received == 2, "the rest is received, so that the sender reads the answer"
    assert "at most 100 bytes" in exchange.answer["detail"]


def test_a_body_that_lies_about_its_size_is_stopped() -> None:
    exchange = Exchange([b"x" * 60] * 5 + [b""], LOCAL | {"content-length": "10"})
    assert exchange.run() == 413


@pytest.mark.parametrize("length", ["-1", "many", "9" * 5000, "1e3", ""])
def test_an_odd_length_is_refused(length: str) -> None:
    assert Exchange([b""], LOCAL | {"content-length": length}).run() == 413


def test_a_sender_that_asks_first_is_not_invited_to_send_what_is_refused() -> None:
    exchange = Exchange([b"x"], LOCAL | {"content-length": "101", "expect": "100-continue"})
    assert exchange.run() == 413
    assert exchange.received == 0


def test_a_body_that_comes_too_slowly_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engram.serve.guard.LONGEST_DISCARD", 0.05)
    exchange = Exchange([b"x"])
    assert exchange.run(body_seconds=0.05) == 408


def test_too_many_requests_at_a_time_are_sent_away() -> None:
    async def crowd() -> list[int]:
        waiting = [Exchange([b"x"]) for _ in range(3)]
        guard = Guard(waiting[0].app, resolve_limits({"most_requests": 2, "body_seconds": 60}), None)
        tasks = [asyncio.create_task(guard(each.scope, each.receive, each.send)) for each in waiting[:2]]
        await asyncio.sleep(0.05)
        waiting[2].parts.append(b"")
        await guard(waiting[2].scope, waiting[2].receive, waiting[2].send)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert guard.active == 0
        return [each.sent[0]["status"] for each in waiting if each.sent]

    assert asyncio.run(crowd()) == [503]


def test_an_address_has_a_rate() -> None:
    limiter = RateLimiter(2.0)
    for _ in range(4):
        limiter.take("a", now=10.0)
    with pytest.raises(Refusal, match="2 requests per second") as refused:
        limiter.take("a", now=10.0)
    assert refused.value.status == 429
    assert refused.value.retry_after == pytest.approx(0.5)
    limiter.take("b", now=10.0)
    limiter.take("a", now=10.5)
    guard = Guard(Exchange([]).app, resolve_limits({"rate": 0.5}), None)
    assert [Exchange([b""]).run(guard=guard) for _ in range(2)] == [200, 429]


def test_the_addresses_that_are_remembered_are_bounded() -> None:
    limiter = RateLimiter(1.0)
    for index in range(2000):
        limiter.take(str(index), now=0.0)
    assert len(limiter._clients) == 1024


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "[", "", "127.0.0.1.evil.example"])
def test_without_a_token_only_names_of_this_machine_are_answered(host: str) -> None:
    """A site that lets its name point to 127.0.0.1 could otherwise read answers."""
    assert Exchange([b""], {"host": host}).run() == 403
    assert Exchange([b""], {"host": host, "authorization": f"Bearer {SECRET}"}).run(Token(SECRET)) == 200


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "127.8.8.8:1", "[::1]:8080"])
def test_names_of_this_machine_are_answered(host: str) -> None:
    assert Exchange([b""], {"host": host}).run() == 200


@pytest.mark.parametrize(
    "more",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://[x"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_pages_of_other_sites_are_refused(more: dict[str, str]) -> None:
    assert Exchange([b""], LOCAL | more).run() == 403


def test_the_own_page_is_answered() -> None:
    assert Exchange([b""], LOCAL | {"origin": "http://127.0.0.1:8080", "sec-fetch-site": "same-origin"}).run() == 200
    assert is_own_origin("https://learner.example", "Learner.example")


def test_an_error_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("at /secret/place")

    exchange = Exchange([b""])
    with caplog.at_level(logging.ERROR):
        assert exchange.run(guard=Guard(broken, resolve_limits({}), None)) == 500
    assert "secret" not in json.dumps(exchange.answer)
    assert "at /secret/place" in caplog.text


def test_a_token_is_read_from_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "token"
    path.write_text(f"{SECRET}\nanother line\n")
    path.chmod(0o600)
    assert read_token(path).fits(f"Bearer {SECRET}")
    assert caplog.text == ""
    path.chmod(0o644)
    assert not read_token(path).fits("Bearer ")
    assert "chmod 600" in caplog.text


@pytest.mark.parametrize("secret", ["", "short", "with blanks in between", "ümläuts-and-more-letters", "x" * 1025])
def test_weak_tokens_are_refused(secret: str) -> None:
    with pytest.raises(InputError, match="16 to 1024 visible ASCII characters") as refused:
        Token(secret)
    assert not secret or secret not in str(refused.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_other_machines_are_let_in_only_with_a_token(host: str) -> None:
    with pytest.raises(InputError, match="--token-file"):
        require_safe_binding(host, None)
    require_safe_binding(host, Token(SECRET))
    require_safe_binding("127.0.0.1", None)
