"""Run the application with uvicorn."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import uvicorn

from engram.base.errors import InputError
from engram.serve.application import create_application
from engram.serve.service import Service, ServiceSettings
from engram.serve.token import Token, require_safe_binding

LONGEST_GOODBYE = 10
"""Seconds that requests have to end after the server was told to stop."""


def open_services(folders: Mapping[str, Path], settings: ServiceSettings) -> dict[str, Service]:
    """Open learners by name; if one cannot be opened, none stays open."""
    opened: dict[str, Service] = {}
    try:
        for name, folder in folders.items():
            opened[name] = Service(folder, settings)
    except BaseException:
        for service in opened.values():
            service.close()
        raise
    return opened


def listen(host: str, port: int, token: Token | None) -> socket.socket:
    """Return a socket that listens at an address. Others than this machine are let in only with a token."""
    require_safe_binding(host, token)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(found[4][:2], family=found[0], backlog=256)
    except OSError as error:
        raise InputError(f"{host}:{port} cannot be listened at ({error}): choose another --port or --host") from error


def serve(
    folders: Mapping[str, Path],
    settings: ServiceSettings,
    listener: socket.socket,
    token: Token | None,
    ready: Callable[[], None],
) -> None:
    """Serve learners until the process is told to stop.

    Args:
        folders: folders of the learners, by name.
        settings: how they are served.
        listener: where requests arrive.
        token: the token that requests must carry, if any.
        ready: called when requests are answered.
    """
    services = open_services(folders, settings)

    def opened() -> Mapping[str, Service]:
        ready()
        return services

    config = uvicorn.Config(
        create_application(opened, settings.limits, token),
        log_level="warning",
        access_log=False,
        server_header=False,
        http="h11",
        ws="none",
        lifespan="on",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=LONGEST_GOODBYE,
    )
    uvicorn.Server(config).run(sockets=[listener])
