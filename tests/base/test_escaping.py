"""Text that leaves the program is only text: on a terminal, in HTML, in a spreadsheet."""

import html
import re
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from engram.base.escaping import for_csv, for_html, for_terminal

ANY_TEXT = st.text(st.characters(exclude_categories=[]))


@given(ANY_TEXT)
def test_a_terminal_gets_nothing_it_could_obey(text: str) -> None:
    shown = for_terminal(text)
    hidden = {unicodedata.category(each) for each in shown if each not in "\n\t"} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert not hidden
    shown.encode()
    assert for_terminal(shown) == shown
    assert len(shown) >= len(text)


def test_readable_text_stays_as_it_is() -> None:
    for text in ("cat", "Größe – 95 % ± 3", "猫 [bold] \\x1b", "a\n\tb"):
        assert for_terminal(text) == text
    assert for_terminal("a\x1b]0;x\x07\u202eb\x9b31m\ud800\r") == "a\\x1b]0;x\\x07\\u202eb\\x9b31m\\ud800\\r"
    assert for_terminal("a\nb", keep="") == "a\\nb"


@given(ANY_TEXT)
def test_html_gets_text_only(text: str) -> None:
    written = for_html(text)
    assert not re.search(r"[<>\"']|&(?!(amp|lt|gt|quot|#x27);)", written)
    assert html.unescape(written) == for_terminal(text)


@given(ANY_TEXT)
def test_a_spreadsheet_gets_no_formula(text: str) -> None:
    assert not str(for_csv(text)).startswith(("=", "+", "-", "@", "\t", "\r"))


def test_numbers_stay_numbers_in_a_table() -> None:
    assert for_csv(-5) == -5
    assert for_csv("-5") == "'-5"
    assert for_csv("=1+1") == "'=1+1"
    assert for_csv("cat") == "cat"
