"""Learners on a Ray cluster: one replica learns, others answer predictions from copies of what it has learned.

    serve run engram.serve.cluster:build cups=/data/cups predictors=2

Requests arrive at `Front`, which checks them as a server on one machine does. It hands `/predict` to one of the
`Predicting` replicas, and everything else to the only `Learning` replica. That one has the folder and the journal.
"""

from __future__ import annotations

import io
import tempfile
import threading
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import serve
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from engram.base.errors import InputError
from engram.learner import Learner
from engram.persistence.checkpoint import holds_checkpoint
from engram.serve.application import unguarded_application
from engram.serve.batches import Array
from engram.serve.bodies import ImageFacts
from engram.serve.guard import Guard
from engram.serve.limits import ServeLimits, resolve_limits
from engram.serve.metrics import Metrics
from engram.serve.predicting import answered
from engram.serve.published import Published
from engram.serve.refusal import Refusal
from engram.serve.server import open_services
from engram.serve.service import NAME, ServiceSettings
from engram.serve.token import Token, read_token

if TYPE_CHECKING:
    from ray.serve import Application
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

PASSED = ("type", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path", "headers")
"""What a replica is told of a request."""
REFRESH_EVERY = 0.5
"""Seconds between two questions of a predicting replica for a newer copy."""
Answer = tuple[int, list[tuple[bytes, bytes]], bytes]
"""Status, headers and body."""


async def answer_of(app: ASGIApp, scope: Mapping[str, Any], body: bytes) -> Answer:
    """Return what an application answers to a request that has arrived as a whole."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app({**scope, "server": None, "client": None, "app": app}, receive, send)
    status, headers = next((each["status"], each["headers"]) for each in sent if each["type"] == "http.response.start")
    return status, list(headers), b"".join(each.get("body", b"") for each in sent)


class Learning:
    """The replica that learns.

    Args:
        folders: folders of the learners, by name.
        settings: how they are served.
    """

    def __init__(self, folders: Mapping[str, Path], settings: ServiceSettings) -> None:
        self.app = unguarded_application()
        self.services = self.app.state.services = open_services(folders, settings)

    async def answer(self, scope: Mapping[str, Any], body: bytes) -> Answer:
        """Answer a request."""
        return await answer_of(self.app, scope, body)

    async def newer(self, name: str, position: int) -> tuple[int, bytes] | None:
        """Return a copy of a learner as a zip file, and its position, if it has learned more batches than this."""
        return await run_in_threadpool(self.services[name].archive_beyond, position)

    def __del__(self) -> None:
        for service in getattr(self, "services", {}).values():
            service.close()


class Mirror:
    """A copy of a learner that another replica trains. It answers predictions, and nothing else.

    Args:
        settings: how the learner is served.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings, self.metrics = settings, Metrics()
        self.published: Published | None = None

    def take(self, position: int, archive: bytes) -> None:
        """Answer from this copy from now on."""
        with tempfile.TemporaryDirectory(prefix="engram-") as scratch:
            zipfile.ZipFile(io.BytesIO(archive)).extractall(scratch)
            newest = Published(Learner.load(Path(scratch) / "learner", net=self.settings.net), position)
        newest.prepare()
        self.published = newest

    def predict(self, images: Array, top: int, *, all_scores: bool) -> dict[str, Any]:
        """Return the likeliest labels of each image, from the newest copy."""
        return answered(self._current(), images, top, self.metrics, all_scores=all_scores)

    def image_facts(self) -> ImageFacts:
        """Return what pictures and labels become."""
        learner = self._current().learner
        shape = learner.image_shape or (3, self.settings.side, self.settings.side)
        return ImageFacts(shape, learner.options["fit"], bool(learner.labels) and isinstance(learner.labels[0], int))

    def _current(self) -> Published:
        if self.published is None:
            raise Refusal(503, "this replica has no copy of the learner yet: try again", 1.0)
        return self.published


class Predicting:
    """A replica that answers predictions.

    Args:
        learning: handle of the replica that learns.
        names: names of the learners.
        settings: how they are served.
    """

    def __init__(self, learning: Any, names: Sequence[str], settings: ServiceSettings) -> None:
        self.learning, self.mirrors = learning, {name: Mirror(settings) for name in names}
        self.app = unguarded_application()
        self.app.state.services = self.mirrors
        self._stopped = threading.Event()
        threading.Thread(target=self._refresh, name="engram-mirror", daemon=True).start()

    async def answer(self, scope: Mapping[str, Any], body: bytes) -> Answer:
        """Answer a request for predictions."""
        return await answer_of(self.app, scope, body)

    def _refresh(self) -> None:
        while not self._stopped.wait(REFRESH_EVERY):
            for name, mirror in self.mirrors.items():
                known = mirror.published.position if mirror.published else -1
                with suppress(Exception):  # the replica that learns may be starting again: the next question tells
                    if found := self.learning.newer.remote(name, known).result(timeout_s=60):
                        mirror.take(*found)

    def __del__(self) -> None:
        if stopped := getattr(self, "_stopped", None):
            stopped.set()


class Front:
    """Where requests arrive: checks them and hands them to a replica.

    Args:
        learning: handle of the replica that learns.
        predicting: handle of those that answer predictions.
        limits: limits on requests.
        token: the token that requests must carry, if any.
    """

    def __init__(self, learning: Any, predicting: Any, limits: ServeLimits, token: Token | None) -> None:
        self.learning, self.predicting = learning, predicting
        self.guard = Guard(self._forward, limits, token)

    async def __call__(self, request: Request) -> Response:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        await self.guard(request.scope, request.receive, send)
        head = next(each for each in sent if each["type"] == "http.response.start")
        answer = Response(b"".join(each.get("body", b"") for each in sent), head["status"])
        answer.raw_headers = list(head["headers"])
        return answer

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts, more = [], True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        chosen = self.predicting if scope["path"].endswith("/predict") else self.learning
        told = {name: scope[name] for name in PASSED if name in scope}
        status, headers, body = await chosen.answer.remote(told, b"".join(parts))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def build(arguments: Mapping[str, str]) -> Application:
    """Return the application of Ray Serve.

    Args:
        arguments: `NAME=FOLDER` for each learner, and if wanted `predictors` (number of replicas that answer, 2),
            `token_file` and `threads` (of the replica that learns).
    """
    given = dict(arguments)
    predictors, token_file = int(given.pop("predictors", "2")), given.pop("token_file", None)
    threads = int(given.pop("threads", "1"))
    folders = {name: Path(folder).expanduser() for name, folder in given.items()}
    for name, folder in folders.items():
        if not NAME.fullmatch(name) or not holds_checkpoint(folder):
            raise InputError(f"{name}={folder}: give NAME=FOLDER, a folder that Learner.save or engram serve wrote")
    if not folders or predictors < 1:
        raise InputError("give at least one NAME=FOLDER, and predictors of at least 1")
    limits = resolve_limits({})
    settings = ServiceSettings(limits, threads=threads)
    token = read_token(Path(token_file).expanduser()) if token_file else None
    learning = serve.deployment(num_replicas=1, max_ongoing_requests=64)(Learning).bind(folders, settings)
    predicting = serve.deployment(num_replicas=predictors)(Predicting).bind(learning, list(folders), settings)
    return serve.deployment(max_ongoing_requests=64)(Front).bind(learning, predicting, limits, token)
