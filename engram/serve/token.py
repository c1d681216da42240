"""Who may ask: the bearer token, the address to bind to, and the pages of a browser that may send requests."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import os
import stat
from pathlib import Path
from urllib.parse import urlsplit

from engram.base.errors import InputError
from engram.persistence.files import read_plain

SHORTEST, LONGEST = 16, 1024
"""Characters of a token."""

_log = logging.getLogger(__name__)


class Token:
    """A secret that requests must carry. Only its hash is kept, and comparing takes the same time whatever is sent."""

    def __init__(self, secret: str) -> None:
        if not SHORTEST <= len(secret) <= LONGEST or not secret.isascii() or not secret.isprintable() or " " in secret:
            raise InputError(
                f"the token must have {SHORTEST} to {LONGEST} visible ASCII characters without blanks: "
                'make one with python -c "import secrets; print(secrets.token_urlsafe(32))"'
            )
        self._digest = hashlib.sha256(secret.encode()).digest()

    def fits(self, authorization: str) -> bool:
        """Return whether the header of a request is `Bearer` and this token."""
        kind, _, secret = authorization.partition(" ")
        sent = hashlib.sha256(secret.strip().encode("utf-8", "surrogateescape")).digest()
        return hmac.compare_digest(sent, self._digest) and kind.lower() == "bearer"


def read_token(path: Path) -> Token:
    """Return the token in a file: its first line. A file that others may read is warned of."""
    content = read_plain(path, 4 * LONGEST, follow=True).decode("utf-8", "replace")
    if os.name == "posix" and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        _log.warning("other users can read the token in %s: chmod 600 it", path)
    return Token(content.partition("\n")[0].strip())


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach this address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def require_safe_binding(host: str, token: Token | None) -> None:
    """Raise an `InputError` if others could reach the server without a token."""
    if token is None and not is_loopback(host):
        raise InputError(
            f"{host} can be reached by other machines, and there is no token: give --token-file FILE, or use "
            "--host 127.0.0.1"
        )


def host_of(header: str) -> str:
    """Return the name in a Host header, without the port; nothing if the header is malformed.

    >>> host_of("localhost:8080"), host_of("[::1]:80"), host_of("[")
    ('localhost', '::1', '')
    """
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def is_own_origin(origin: str, host: str) -> bool:
    """Return whether a page's Origin header names the server that the Host header names."""
    scheme, _, place = origin.partition("://")
    return scheme in ("http", "https") and place.lower() == host.lower()
