"""Text from files and networks, made harmless where it leaves the program: on a terminal, in HTML, in a CSV table.

Each place has one function. Use it at the border, on the whole text, and not on its way there.
"""

from __future__ import annotations

import html
import unicodedata

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of characters that are not shown: controls, directions, surrogates, separators of lines."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of a cell that spreadsheets take for a formula."""


def for_terminal(value: object, keep: str = "\n\t") -> str:
    """Return a text with every character that a terminal may obey written as an escape such as "\\x1b".

    >>> for_terminal("cat\\x1b[2J")
    'cat\\\\x1b[2J'

    Args:
        value: the text, or anything that `str` turns into one.
        keep: characters to leave as they are.
    """
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if each in keep or _is_shown(each) else _escape(each) for each in text)


def for_html(value: object) -> str:
    """Return a text that is only text in HTML, inside an element or a quoted attribute."""
    return html.escape(for_terminal(value), quote=True)


def for_csv(value: int | str) -> int | str:
    """Return a cell that no spreadsheet takes for a formula: an apostrophe goes before a text that begins like one."""
    if isinstance(value, int):
        return value
    text = for_terminal(value)
    return f"'{text}" if text.startswith(FORMULA) else text


def _is_shown(character: str) -> bool:
    return unicodedata.category(character) not in HIDDEN


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
