"""The application: learners by name behind one server, with a page, metrics and a description of itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from engram import __version__
from engram.base.errors import InputError, NotReadyError
from engram.serve.answers import REFUSALS, Health, Learners, answering
from engram.serve.guard import Guard
from engram.serve.limits import ServeLimits
from engram.serve.metrics import prometheus_text
from engram.serve.page import describe_routes, page, page_policy
from engram.serve.refusal import Refusal
from engram.serve.routes import BEARER, AsciiResponse, router
from engram.serve.service import Service
from engram.serve.token import Token

if TYPE_CHECKING:
    from starlette.types import ASGIApp


def create_application(
    open_services: Callable[[], Mapping[str, Service]], limits: ServeLimits, token: Token | None
) -> ASGIApp:
    """Return the ASGI application. Learners are opened when it starts and closed when it ends.

    Args:
        open_services: opens the learners and returns them by name; the first one also answers without its name.
        limits: limits on requests.
        token: the token that requests must carry, if any.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.services = open_services()
        try:
            yield
        finally:
            for service in app.state.services.values():
                service.close()

    app = unguarded_application(lifespan)
    return Guard(app, limits, token, app.state.count_refusal)


def unguarded_application(lifespan: Any = None) -> FastAPI:
    """Return the application without its guard. `app.state.services` must hold the learners by name.

    Args:
        lifespan: what happens when the application starts and ends.
    """
    app = FastAPI(
        title="engram",
        version=__version__,
        description="A learner that takes labeled images as they come and answers while it learns.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        default_response_class=AsciiResponse,
    )
    _add_common_routes(app)
    app.include_router(router)
    app.include_router(router, prefix="/learners/{name}", include_in_schema=False)
    for kind in (Refusal, InputError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _refuse)

    def count_refusal() -> None:
        for service in list(getattr(app.state, "services", {}).values())[:1]:
            service.metrics.count("requests_refused")

    app.state.count_refusal = count_refusal
    return app


def _add_common_routes(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    def show_page() -> Response:
        return HTMLResponse(page(), headers={"content-security-policy": page_policy()})

    @app.get("/docs", include_in_schema=False)
    def show_routes() -> Response:
        return HTMLResponse(describe_routes(app.openapi()), headers={"content-security-policy": page_policy()})

    @app.get("/healthz", responses=answering(Health) | {503: {"model": Health, "description": "Learning has stopped."}})
    def healthz() -> Response:
        """Return whether every learner can learn; this needs no token."""
        healthy = all(service.writer.failure is None for service in app.state.services.values())
        return AsciiResponse({"healthy": healthy}, status_code=200 if healthy else 503)

    @app.get("/learners", responses=answering(Learners) | REFUSALS, dependencies=[Depends(BEARER)])
    def learners() -> Response:
        """Return the names of the learners; each answers below /learners/NAME, the first also without that."""
        return AsciiResponse({"learners": list(app.state.services)})

    @app.get("/metrics", response_class=PlainTextResponse, responses=REFUSALS, dependencies=[Depends(BEARER)])
    def metrics() -> Response:
        """Return counters, times and bytes in the text format of Prometheus."""
        services: Mapping[str, Service] = app.state.services
        facts = {
            name: (each.metrics, each.gauges(), each.publication.current.footprint) for name, each in services.items()
        }
        return PlainTextResponse(prometheus_text(facts), media_type="text/plain; version=0.0.4")


async def _refuse(request: Request, error: Exception) -> Response:
    """Answer with the reason of an error, without anything of the program in it."""
    refusal = _refusal_of(error)
    request.app.state.count_refusal()
    headers = dict(getattr(error, "headers", None) or {}) if isinstance(error, HTTPException) else {}
    return AsciiResponse(refusal.body(), status_code=refusal.status, headers=headers | refusal.headers())


def _refusal_of(error: Exception) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, RequestValidationError):
        first: dict[str, Any] = error.errors()[0]
        return Refusal(422, f"{'.'.join(map(str, first['loc']))[:100]}: {first['msg'][:200]}")
    if isinstance(error, HTTPException):
        return Refusal(error.status_code, str(error.detail)[:300])
    return Refusal(409 if isinstance(error, NotReadyError) else 422, str(error)[:500])
