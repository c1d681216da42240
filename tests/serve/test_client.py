"""The client sends a batch again, with the same id, until it is acknowledged, and gives up when that cannot help."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from engram.serve import Client, ServerError
from engram.serve.bodies import from_npz
from tests.serve.serving import LIMITS, batch_of

Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def answering(*answers: Answer) -> Iterator[tuple[str, list[tuple[str, bytes, Any]]]]:
    """Serve these answers in turn; give the address, and what was asked."""
    asked: list[tuple[str, bytes, Any]] = []
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            asked.append((self.path, body, self.headers))
            left.pop(0)(self)

        do_GET = do_POST

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def says(status: int, content: Any) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        handler.send_response(status)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def hangs_up(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.close()


def stops_in_the_middle(status: int) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("content-length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"id": ')

    return answer


RECEIPT = {"id": "x", "position": 1, "duplicate": False, "queued": 1}


def test_a_batch_is_sent_again_with_its_id_until_it_is_acknowledged() -> None:
    x, y = batch_of(0)
    full = says(429, {"detail": "full", "retry_after": 0.01})
    torn = (hangs_up, stops_in_the_middle(200), stops_in_the_middle(429))
    with answering(*torn, full, says(200, RECEIPT)) as (url, asked):
        assert Client(url).observe(x, y) == RECEIPT
    assert len(asked) == 5
    assert len({(path, body) for path, body, _ in asked}) == 1
    assert asked[0][0].startswith("/observe?id=")
    images, labels = from_npz(asked[0][1], LIMITS)
    np.testing.assert_array_equal(images, x)
    assert labels == y


def test_every_batch_gets_an_id_of_its_own() -> None:
    with answering(says(200, RECEIPT), says(200, RECEIPT)) as (url, asked):
        for _ in range(2):
            Client(url).observe(*batch_of(0))
    assert asked[0][0] != asked[1][0]


def test_a_refusal_that_time_does_not_help_is_raised_at_once() -> None:
    with answering(says(422, {"detail": "the labels are wrong"})) as (url, asked):
        with pytest.raises(ServerError, match="the labels are wrong") as refused:
            Client(url).observe(*batch_of(0))
        assert refused.value.status == 422
    assert len(asked) == 1


def test_patience_ends() -> None:
    away = says(503, {"detail": "shutting down", "retry_after": 100.0})
    with answering(away) as (url, _), pytest.raises(ServerError, match="shutting down"):
        Client(url, patience=0.2).observe(*batch_of(0))
    with pytest.raises(ServerError, match="does not answer") as refused:
        Client(url, patience=0.2).status()
    assert refused.value.status == 0


def test_token_and_learner_are_named() -> None:
    with answering(says(200, {"healthy": True})) as (url, asked):
        Client(url, token="secret", learner="a b").status()
    assert asked[0][0] == "/learners/a%20b/status"
    assert asked[0][2]["authorization"] == "Bearer secret"


def test_floats_are_sent_in_single_precision() -> None:
    answer = {"predictions": [{"label": "a", "top": []}] * 4}
    with answering(says(200, answer)) as (url, asked):
        assert Client(url).predict(batch_of(0)[0] / 255) == ["a"] * 4
    assert from_npz(asked[0][1], LIMITS)[0].dtype == np.float32


def test_waiting_ends_when_the_batch_is_learned_or_learning_has_stopped() -> None:
    def status(published: int, failure: str | None = None) -> Answer:
        return says(200, {"published": published, "healthy": failure is None, "failure": failure, "queued": 1})

    with answering(status(1), status(2)) as (url, asked):
        assert Client(url).wait(2)["published"] == 2
        assert len(asked) == 2
    with answering(status(1, "it stopped")) as (url, _), pytest.raises(ServerError, match="it stopped"):
        Client(url).wait(2)
    with answering(status(1)) as (url, _), pytest.raises(TimeoutError, match="1 wait"):
        Client(url).wait(2, timeout=-1)


@pytest.mark.parametrize(
    ("labels", "reason"), [([1, "a"], "mix integers and strings"), ([0.5, 1.0], "float64"), ([1 << 70, 1], "object")]
)
def test_labels_that_would_change_on_the_way_are_refused_here(labels: list[Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Client("http://127.0.0.1:1").observe(batch_of(0, 2)[0], labels)


def test_an_address_must_be_one_of_http() -> None:
    with pytest.raises(ValueError, match="no address of a server"):
        Client("file:///etc/passwd")
