"""The page in the browser, and the description of the routes. Neither loads anything from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from engram.base.escaping import for_html

_INLINE = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)


@cache
def page() -> str:
    """Return the page: teach, ask, and look at the memory."""
    return Path(__file__).with_name("page.html").read_text(encoding="utf-8")


@cache
def page_policy() -> str:
    """Return what the browser may do for the page: run its own script, talk to this server, and nothing else."""
    hashes = {kind: base64.b64encode(hashlib.sha256(text.encode()).digest()) for kind, text in _INLINE.findall(page())}
    return (
        f"default-src 'none'; script-src 'sha256-{hashes['script'].decode()}'; "
        f"style-src 'sha256-{hashes['style'].decode()}'; img-src data: blob:; media-src blob: mediastream:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def describe_routes(schema: Mapping[str, Any]) -> str:
    """Return a page that lists the routes of an OpenAPI description, in the style of the other page."""
    style = _INLINE.findall(page())[0][1]
    parts = [
        f"<section><h2>{for_html(method.upper())} {for_html(path)}</h2>{_route(facts)}</section>"
        for path, methods in schema["paths"].items()
        for method, facts in methods.items()
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>engram: routes</title><style>{style}</style></head><body><main><header><h1>Routes</h1>"
        f"<p>{for_html(schema['info']['description'])} The same in the words of OpenAPI: "
        f'<a href="/openapi.json">/openapi.json</a></p></header>{"".join(parts)}</main></body></html>'
    )


def _route(facts: Mapping[str, Any]) -> str:
    lines = [f"<p>{for_html(facts.get('description', ''))}</p>"]
    for each in facts.get("parameters", []):
        lines.append(f"<p><code>?{for_html(each['name'])}=</code> {for_html(each.get('description', ''))}</p>")
    kinds = facts.get("requestBody", {}).get("content", {})
    if kinds:
        names = ", ".join(f"<code>{for_html(kind)}</code>" for kind in kinds)
        lines.append(f"<p>Body: {names}</p>")
    answers = "".join(
        f"<li><code>{for_html(status)}</code> {for_html(answer['description'])}</li>"
        for status, answer in facts["responses"].items()
    )
    return "".join(lines) + f"<ul>{answers}</ul>"
