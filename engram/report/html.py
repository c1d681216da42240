"""HTML from text: everything is escaped, except what is HTML already."""

from __future__ import annotations

from engram.base.escaping import for_html


class Html(str):
    """A text that is HTML already. Make it of constants and of what `html` returned, never of something read."""

    __slots__ = ()


def html(value: object) -> Html:
    """Return a value as HTML: escaped as text, unless it is HTML already."""
    return value if isinstance(value, Html) else Html(for_html(value))
