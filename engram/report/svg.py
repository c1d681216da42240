"""Small charts as inline SVG. They use the page's colors, also in dark mode, and describe themselves in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engram.base.escaping import for_html

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 44
COLORS = 10
"""Number of colors: the classes c0 to c9 of the page's style sheet."""
WIDE = 5
"""A scatter chart is logarithmic across if its largest value is more than so many times its smallest."""
DASHES = ("", "7 4", "2 3", "10 3 2 3")
LONGEST_LABEL = 28
"""Most characters of the label beside a point."""


@dataclass(frozen=True)
class Series:
    """A named series of points.

    Args:
        name: name in the legend.
        points: x and y of each point.
        band: lowest and highest y at each point, drawn as a band around the line; empty for none.
    """

    name: str
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float]] = ()


def line_chart(title: str, x_label: str, y_label: str, series: Sequence[Series], *, log_y: bool = False) -> str:
    """Return a chart of lines with markers. Lines differ in color and in dashes."""
    return _chart(title, x_label, y_label, series, joined=True, log_x=False, log_y=log_y)


def scatter_chart(title: str, x_label: str, y_label: str, series: Sequence[Series], unit: str = "") -> str:
    """Return a chart of points with their names beside them. The x axis is logarithmic if the points are far apart.

    Args:
        title: title of the chart.
        x_label: label of the x axis.
        y_label: label of the y axis.
        series: points, by name.
        unit: unit of the values on the x axis, written beside each.
    """
    xs = [x for one in series for x, _ in one.points]
    far_apart = bool(xs) and min(xs) > 0 and max(xs) > WIDE * min(xs)
    return _chart(title, x_label, y_label, series, joined=False, log_x=far_apart, log_y=False, unit=unit)


def _chart(
    title: str,
    x_label: str,
    y_label: str,
    series: Sequence[Series],
    *,
    joined: bool,
    log_x: bool,
    log_y: bool,
    unit: str = "",
) -> str:
    xs = [x for one in series for x, _ in one.points]
    ys = [y for one in series for _, y in one.points] + [end for one in series for ends in one.band for end in ends]
    if not xs:
        return ""
    across, up = Axis(xs, log_x, LEFT, WIDTH - RIGHT), Axis(ys, log_y, HEIGHT - BOTTOM, TOP, from_zero=not log_y)
    parts = [
        _frame(across, up, x_label, y_label, unit),
        *(_band(one, index, across, up) for index, one in enumerate(series)),
    ]
    for index, one in enumerate(series):
        places = [(across.place(x), up.place(y)) for x, y in one.points]
        color = f"c{index % COLORS}"
        if joined:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(f'<polyline class="line {color}" stroke-dasharray="{_dash(index)}" points="{path}"/>')
        if len(places) <= 60:
            parts += [f'<circle class="dot {color}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in places]
        if not joined:
            parts += [_label(one.name, x, y) for x, y in places]
    words = "; ".join(f"{one.name}: {_in_words(one.points)}" for one in series)
    drawing = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{for_html(f"{title}. {words}")}">'
        f"{''.join(parts)}</svg>"
    )
    keys = [_line_key(index) if joined else _square_key(index) for index in range(len(series))]
    legend = _legend(keys, [one.name for one in series])
    return f"<figure><figcaption>{for_html(title)}</figcaption>{drawing}{legend}</figure>"


def _band(series: Series, index: int, across: Axis, up: Axis) -> str:
    """Return the area between the lowest and the highest values of a series."""
    ends = list(zip((x for x, _ in series.points), series.band, strict=False))
    outline = [(x, low) for x, (low, _) in ends] + [(x, high) for x, (_, high) in reversed(ends)]
    path = " ".join(f"{across.place(x):.1f},{up.place(y):.1f}" for x, y in outline)
    return f'<polygon class="band c{index % COLORS}" points="{path}"/>' if path else ""


def _dash(index: int) -> str:
    """Return the dashes of a series. Of the first forty series, no two share both color and dashes."""
    return DASHES[(index + index // COLORS) % len(DASHES)]


def _label(name: str, x: float, y: float) -> str:
    """Return the label of a point, on the side with more room; a long name is cut, as the legend has it in full."""
    short = name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…"
    left = x > (LEFT + WIDTH - RIGHT) / 2
    side = f'x="{x - 6:.1f}" text-anchor="end"' if left else f'x="{x + 6:.1f}"'
    return f'<text class="small" {side} y="{y + 4:.1f}">{for_html(short)}</text>'


class Axis:
    """Converts values to positions along one axis of a chart.

    Args:
        values: values that must fit on the axis.
        logarithmic: use a logarithmic scale.
        start: position of the low end in the picture.
        end: position of the high end in the picture.
        from_zero: begin at zero, or below it if there are negative values.
    """

    def __init__(
        self, values: Sequence[float], logarithmic: bool, start: float, end: float, from_zero: bool = False
    ) -> None:
        self.logarithmic, self.start, self.end = logarithmic, start, end
        self.whole = all(float(value).is_integer() for value in values)
        low, high = min(values), max(values)
        if logarithmic:
            low, high = max(low, 1e-9), max(high, 1e-9)
            self.low, self.high = math.log10(low) - 0.05, math.log10(high) + 0.15
        else:
            low = min(0.0, low) if from_zero else low
            margin = 0.05 * (high - low or abs(high) or 1)
            self.low, self.high = low - (0 if from_zero else margin), high + margin * (1 if from_zero else 3)

    def place(self, value: float) -> float:
        """Return the position of a value in the picture."""
        at = math.log10(max(value, 1e-9)) if self.logarithmic else value
        return self.start + (at - self.low) / (self.high - self.low or 1) * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Return round values on the axis with their labels; no two labels are the same."""
        if self.logarithmic:
            tens = range(math.floor(self.low), math.ceil(self.high) + 1)
            found = [step * 10.0**ten for ten in tens for step in (1, 2, 5)]
            return [(tick, number(tick)) for tick in found if self.low <= math.log10(tick) <= self.high]
        span = self.high - self.low or 1
        step = 10 ** math.floor(math.log10(span))
        step = next(step * share for share in (0.1, 0.2, 0.5, 1, 2) if span / (step * share) <= 8)
        step = max(step, 1) if self.whole else step
        first = math.ceil(self.low / step)
        ticks = [step * count for count in range(first, math.floor(self.high / step) + 1)]
        smallest_digit = 10 ** math.floor(math.log10(step) + 1e-9)
        digits = max(3, len(str(round(max(map(abs, ticks)) / smallest_digit))))
        return [(tick, number(tick, digits)) for tick in ticks]


def _frame(across: Axis, up: Axis, x_label: str, y_label: str, unit: str) -> str:
    base = HEIGHT - BOTTOM
    parts = [f'<line class="axis" x1="{LEFT}" y1="{base}" x2="{WIDTH - RIGHT}" y2="{base}"/>']
    for tick, written in across.ticks():
        x = across.place(tick)
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{base + 16}" text-anchor="middle">{with_unit(written, unit)}</text>'
        )
    for tick, written in up.ticks():
        y = up.place(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{written}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="label" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{for_html(x_label)}</text>')
    side = f'transform="translate(14 {(TOP + base) / 2}) rotate(-90)"'
    parts.append(f'<text class="label" {side} text-anchor="middle">{for_html(y_label)}</text>')
    return "".join(parts)


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
    legend = _legend([_square_key(index) for index in range(len(names))], names)
    return f"<figure>{caption}<table class='barchart'>{''.join(lines)}</table>{legend}</figure>"


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


def _legend(keys: Sequence[str], names: Sequence[str]) -> str:
    items = "".join(f"<li>{key}{for_html(name)}</li>" for key, name in zip(keys, names, strict=True))
    return f"<ul class='legend'>{items}</ul>"


def _square_key(index: int) -> str:
    return f"<span class='key b{index % COLORS}'></span>"


def _line_key(index: int) -> str:
    line = f'<line class="line c{index % COLORS}" stroke-dasharray="{_dash(index)}" x1="0" y1="5" x2="34" y2="5"/>'
    return f'<svg class="key" viewBox="0 0 34 10" aria-hidden="true">{line}</svg>'


def _in_words(points: Sequence[tuple[float, float]]) -> str:
    """Return the values of a few points; of many points, the first, the last, the lowest and the highest."""
    if len(points) <= 12:
        return ", ".join(number(y) for _, y in points)
    ys = [y for _, y in points]
    return f"from {number(ys[0])} to {number(ys[-1])}, lowest {number(min(ys))}, highest {number(max(ys))}"


def number(value: float, digits: int = 3) -> str:
    """Return a short text of a number with so many digits, and with k, M or G for large numbers."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= (1 - 0.5 * 0.1**digits) * size:
            return f"{value / size:.{digits}g}{letter}"
    return f"{value:.{digits}g}"


def with_unit(written: str, unit: str) -> str:
    """Return a text of `number` with a unit, such as "7.7 MB"; thousands of seconds are written out."""
    if not unit:
        return written
    amount = written.rstrip("kMG")
    letter = written[len(amount) :]
    if unit == "s" and letter:
        return f"{float(amount) * {'k': 1e3, 'M': 1e6, 'G': 1e9}[letter]:,.0f} s"
    return f"{amount} {letter}{unit}"
