"""Charts as inline SVG, drawn by matplotlib. They use the page's colors, also in dark mode, and describe themselves.

matplotlib writes fixed colors and fonts. So a chart is drawn in placeholder colors, which then become the variables of
the page's style sheet, and its fonts are left to the page.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engram.base.escaping import for_html, for_terminal
from engram.report.amounts import distinct_numbers, number, with_unit
from engram.report.html_charts import COLORS, legend, square_key

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

WIDTH, HEIGHT = 440, 270
"""Size of a chart in CSS pixels, before the page scales it: a little wider than a phone."""
FONT_SIZE = 13
"""Size of a chart's texts in the same pixels; the page's style sheet says it again."""
MARGINS = {"left": 58 / WIDTH, "right": 1 - 26 / WIDTH, "bottom": 48 / HEIGHT, "top": 1 - 12 / HEIGHT}
WIDE = 5
"""A scatter chart is logarithmic across if its largest value is more than so many times its smallest."""
DASHES = ((), (7, 4), (2, 3), (10, 3, 2, 3))
MOST_DOTS = 60
"""A line of more points has no dots."""
LONGEST_LABEL = 24
"""Most characters of the label beside a point."""
PLACEHOLDERS = {
    "text": "#01fe01",
    "soft": "#01fe02",
    "rule": "#01fe03",
    **{f"c{color}": f"#01fe1{color}" for color in range(COLORS)},
}
"""Color that stands for each variable of the style sheet while matplotlib draws."""


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
    """Return a chart of lines with markers. Lines differ in color and in dashes.

    Args:
        title: title of the chart.
        x_label: label of the x axis.
        y_label: label of the y axis.
        series: lines, by name.
        log_y: make the y axis logarithmic, if all values are positive.
    """
    log_y = log_y and all(y > 0 for y in _heights(series))
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
    if not any(one.points for one in series):
        return ""
    from matplotlib import style
    from matplotlib.figure import Figure

    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": title,
        "path.simplify": False,
        "lines.scale_dashes": False,
        "font.size": FONT_SIZE,
    }
    with style.context(["default", settings]):  # not the user's own settings of matplotlib
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72), dpi=72)
        figure.patch.set_visible(False)
        axes = figure.add_axes((MARGINS["left"], MARGINS["bottom"], *_room()))
        for index, one in enumerate(series):
            _draw(axes, index, one, joined)
        _scale(axes, series, log_x, log_y)
        _label_ticks(axes.xaxis, unit)
        _label_ticks(axes.yaxis, "")
        _style(axes, x_label, y_label)
        if not joined:
            _name_points(axes, series)
        written = io.StringIO()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")  # the browser has the glyph, or shows that it has none
            figure.savefig(written, format="svg", transparent=True)
    words = "; ".join(f"{one.name}: {_in_words(one.points)}" for one in series)
    drawing = _for_page(written.getvalue(), f"{title}. {words}")
    keys = [_line_key(index) if joined else square_key(index) for index in range(len(series))]
    return (
        f"<figure><figcaption>{for_html(title)}</figcaption>{drawing}{legend(keys, [s.name for s in series])}</figure>"
    )


def _room() -> tuple[float, float]:
    """Return the width and the height of the axes as parts of the figure."""
    return MARGINS["right"] - MARGINS["left"], MARGINS["top"] - MARGINS["bottom"]


def _draw(axes: Axes, index: int, series: Series, joined: bool) -> None:
    """Draw the band, the line and the dots of a series."""
    color = PLACEHOLDERS[f"c{index % COLORS}"]
    xs, ys = [x for x, _ in series.points], [y for _, y in series.points]
    if series.band:
        low, high = zip(*series.band, strict=True)
        area = axes.fill_between(xs, low, high, fc=(color, 0.12), ec=(color, 0.5), linewidth=0.6, clip_on=False)
        area.set_gid(f"band c{index % COLORS}")
    line = axes.plot(xs, ys, color=color, linewidth=2 if joined else 0, clip_on=False)[0]
    line.set_linestyle((0, _dash(index)) if _dash(index) else "solid")
    line.set_dash_capstyle("butt")
    line.set_gid(f"line c{index % COLORS}")
    if not joined or len(xs) <= MOST_DOTS:
        line.set_marker("o")
        line.set_markersize(6)
        line.set_markeredgewidth(0)


def _heights(series: Sequence[Series]) -> list[float]:
    """Return y of all points, and both ends of all bands."""
    return [y for one in series for _, y in one.points] + [end for one in series for ends in one.band for end in ends]


def _scale(axes: Axes, series: Sequence[Series], log_x: bool, log_y: bool) -> None:
    """Set the scales and the ends of the axes: y begins at zero, or below it if values are negative."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    xs = [x for one in series for x, _ in one.points]
    ys = _heights(series)
    axes.set(xscale="log" if log_x else "linear", yscale="log" if log_y else "linear")
    for axis, values, logarithmic, most in ((axes.xaxis, xs, log_x, 4), (axes.yaxis, ys, log_y, 6)):
        if logarithmic:
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_minor_locator(LogLocator(subs=()))
        else:
            whole = all(float(value).is_integer() for value in values)
            axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10], integer=whole))
    if not log_y:
        top = max(ys) + 0.05 * (max(ys) - min(0.0, *ys) or abs(max(ys)) or 1)
        axes.set_ylim(min(0.0, *ys), top)


def _label_ticks(axis: Axis, unit: str) -> None:
    """Write short numbers at the ticks of an axis; no two are the same."""
    low, high = sorted(axis.get_view_interval())
    ticks = [tick for tick in axis.get_major_locator().tick_values(low, high) if low <= tick <= high]
    axis.set_ticks(ticks, labels=[with_unit(written, unit) for written in distinct_numbers(ticks)])


def _style(axes: Axes, x_label: str, y_label: str) -> None:
    """Draw lines across at the ticks of y, a line below, and the names of both axes, in the page's colors."""
    axes.set_xlabel(for_terminal(x_label), color=PLACEHOLDERS["text"], parse_math=False)
    axes.set_ylabel(for_terminal(y_label), color=PLACEHOLDERS["text"], parse_math=False)
    axes.grid(axis="y", color=PLACEHOLDERS["rule"], linewidth=0.6, clip_on=False)
    axes.tick_params(length=0, labelcolor=PLACEHOLDERS["text"])
    axes.tick_params(axis="x", pad=7)
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.spines["bottom"].set_color(PLACEHOLDERS["soft"])
    axes.patch.set_visible(False)


def _name_points(axes: Axes, series: Sequence[Series]) -> None:
    """Write the name of a series beside its points, on the side with more room. The legend has a long name in full."""
    points = [(one.name, axes.transData.transform(point)) for one in series for point in one.points]
    marks = [(name, float(place[0]), float(place[1])) for name, place in points]
    low, high = axes.bbox.y0, axes.bbox.y1
    middle = (axes.bbox.x0 + axes.bbox.x1) / 2
    taken = [(x - 4, x + 4, y) for _, x, y in marks]
    for name, x, y in sorted(marks, key=lambda mark: -mark[2]):  # so that names that must make room keep their order
        whole = for_terminal(name)
        short = whole if len(whole) <= LONGEST_LABEL else f"{whole[: LONGEST_LABEL - 1]}…"
        width = 0.6 * FONT_SIZE * len(short)
        start = x - 7 - width if x > middle else x + 7
        label_y = free_place(start, start + width, y, (low, high), taken)
        taken.append((start, start + width, label_y))
        axes.annotate(
            short,
            (x, y),
            xycoords="figure pixels",
            xytext=(-7 if x > middle else 7, label_y - y),
            textcoords="offset points",
            ha="right" if x > middle else "left",
            va="center",
            color=PLACEHOLDERS["text"],
            parse_math=False,
            annotation_clip=False,
        )


def free_place(
    start: float, end: float, y: float, ends: tuple[float, float], taken: Sequence[tuple[float, float, float]]
) -> float:
    """Return the first height below y where a label covers nothing, else the first above; y itself if there is none.

    Args:
        start: where the label begins, in pixels from the left.
        end: where the label ends.
        y: height where it would stand best.
        ends: lowest and highest place there is.
        taken: start, end and height of each label and dot that is there.
    """
    low, high = ends
    steps: list[int] = [*range(0, -int(high - low), -1), *range(1, int(high - low))]
    around = [other_y for other_start, other_end, other_y in taken if other_start < end and start < other_end]
    for step in steps:
        if low <= y + step <= high and all(abs(y + step - other) >= FONT_SIZE for other in around):
            return y + step
    return y


def _dash(index: int) -> tuple[int, ...]:
    """Return the dashes of a series. Of the first forty series, no two share both color and dashes."""
    return DASHES[(index + index // COLORS) % len(DASHES)]


def _for_page(svg: str, description: str) -> str:
    """Return a drawing of matplotlib as a part of the page.

    Left out are the XML header, metadata, styles for the whole page, sizes, and fonts; identifiers that another chart
    may have too become classes where they are ours, and nothing otherwise.
    """
    body = svg[svg.index(">", svg.index("<svg")) + 1 :]
    body = re.sub(
        r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>|<!--.*?-->", "", body, flags=re.DOTALL
    )
    body = re.sub(r'<g id="((?:line|band) c\d+)">', r'<g class="\1">', body)
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    body = re.sub(r"font-(?:size|family|stretch|weight|style): [^;\"]*;? ?", "", body)
    for name, color in PLACEHOLDERS.items():
        body = body.replace(color, f"var(--{name})")
    body = re.sub(r"\s*\n\s*", "\n", body)
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{for_html(description)}">{body}'


def _line_key(index: int) -> str:
    dashes = " ".join(map(str, _dash(index)))
    style = f'style="stroke: var(--c{index % COLORS})" stroke-dasharray="{dashes}"'
    return f'<svg class="key" viewBox="0 0 34 10" aria-hidden="true"><line {style} x1="0" y1="5" x2="34" y2="5"/></svg>'


def _in_words(points: Sequence[tuple[float, float]]) -> str:
    """Return the values of a few points; of many points, the first, the last, the lowest and the highest."""
    if len(points) <= 12:
        return ", ".join(number(y) for _, y in points)
    ys = [y for _, y in points]
    return f"from {number(ys[0])} to {number(ys[-1])}, lowest {number(min(ys))}, highest {number(max(ys))}"
