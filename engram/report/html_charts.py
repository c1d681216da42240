"""Charts made of HTML alone: bars in parts, an accuracy matrix, and the legend of any chart."""

from __future__ import annotations

from collections.abc import Sequence

from engram.base.escaping import for_html
from engram.report.amounts import number, with_unit

COLORS = 10
"""Number of colors: the variables --c0 to --c9 of the page's style sheet."""


def stacked_bars(title: str, rows: Sequence[tuple[str, dict[str, float]]], unit: str) -> str:
    """Return a chart with one bar per row, made of its parts.

    Args:
        title: title of the chart.
        rows: name of each row, and the values of its parts by name.
        unit: unit of the values.
    """
    names = list(dict.fromkeys(part for _, parts in rows for part, value in parts.items() if value > 0))
    longest = max((sum(parts.values()) for _, parts in rows), default=0.0)
    if not names or not longest:
        return ""
    lines = []
    for label, parts in rows:
        bars = "".join(
            f'<span class="bar b{names.index(part) % COLORS}" style="width:{100 * value / longest:.2f}%" '
            f'title="{for_html(part)}: {with_unit(number(value), unit)}"></span>'
            for part, value in parts.items()
            if value > 0
        )
        total = with_unit(number(sum(parts.values())), unit)
        words = ", ".join(f"{part} {with_unit(number(value), unit)}" for part, value in parts.items() if value > 0)
        lines.append(
            f"<tr><th scope='row'>{for_html(label)}</th><td><div class='bars' role='img' "
            f'aria-label="{for_html(words)}">{bars}</div></td><td class="value">{total}</td></tr>'
        )
    caption = f"<figcaption>{for_html(title)}</figcaption>"
    listed = legend([square_key(index) for index in range(len(names))], names)
    return f"<figure>{caption}<table class='barchart'>{''.join(lines)}</table>{listed}</figure>"


def heat_map(title: str, matrix: Sequence[Sequence[float | None]]) -> str:
    """Return an accuracy matrix as a table of numbers; cells with higher values are darker."""
    head = "".join(f"<th scope='col'>task {column + 1}</th>" for column in range(len(matrix[0])))
    lines = []
    for row, values in enumerate(matrix):
        cells = "".join(
            "<td></td>" if value is None else f"<td style='--heat:{value / 100:.3f}'>{value:.1f}</td>"
            for value in values
        )
        lines.append(f"<tr><th scope='row'>after {row + 1}</th>{cells}</tr>")
    table = f"<table class='heat'><thead><tr><td></td>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f"<figure><figcaption>{for_html(title)}</figcaption>{scrolling(table)}</figure>"


def scrolling(table: str) -> str:
    """Return a table that scrolls if it is wider than the screen, and that the keyboard can reach."""
    return f"<div class='scroll' role='region' aria-label='table' tabindex='0'>{table}</div>"


def legend(keys: Sequence[str], names: Sequence[str]) -> str:
    """Return the names of a chart's series, each behind its key, which is HTML."""
    items = "".join(f"<li>{key}{for_html(name)}</li>" for key, name in zip(keys, names, strict=True))
    return f"<ul class='legend'>{items}</ul>"


def square_key(index: int) -> str:
    """Return a square in the color of a series."""
    return f"<span class='key b{index % COLORS}'></span>"
