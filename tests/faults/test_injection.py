"""What files say is shown as text: nothing in them reaches a terminal, a page or a spreadsheet as an order."""

import io

from rich.table import Table

from engram.cli.console import plain_console

EVIL = "\x1b]0;owned\x07\x9b31m\u202e<img src=x onerror=alert(1)>"


def test_the_console_shows_controls_as_text_everywhere() -> None:
    out = io.StringIO()
    console = plain_console()
    console.file = out
    table = Table(f"head {EVIL}", caption=f"below {EVIL}")
    table.add_row(f"cell {EVIL}")
    console.print(table, soft_wrap=True)
    console.print(f"line {EVIL}", soft_wrap=True)
    shown = out.getvalue()
    assert not set(shown) & set("\x1b\x07\x9b\u202e")
    assert "line \\x1b]0;owned" in shown
