"""A comparison of runs as text for other programs: Markdown, CSV and LaTeX (booktabs)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence

from engram.base.escaping import for_csv
from engram.evaluation.metrics import Interval
from engram.report.tables import Row, describe_protocol

HEADINGS = ("method", "seeds", "accuracy %", "difference", "forgetting %", "learning %", "seconds", "bytes of state")


def as_markdown(rows: Sequence[Row]) -> str:
    """Return a Markdown table for each protocol, below a line that describes it."""
    blocks = []
    for protocol, own in by_protocol(rows).items():
        lines = [_markdown_line(HEADINGS), "|---" + "|---:" * (len(HEADINGS) - 1) + "|"]
        lines += [_markdown_line([cell.replace("|", "\\|") for cell in _cells(row)]) for row in own]
        blocks.append("\n".join([protocol, "", *lines]))
    return "\n\n".join(blocks)


def as_csv(rows: Sequence[Row]) -> str:
    """Return comma-separated values: one line per row, means and half-widths of intervals in columns of their own."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    measures = ("accuracy", "difference", "forgetting", "learning")
    spread = [f"{name}{ending}" for name in measures for ending in ("", "_half_width")]
    writer.writerow(["protocol", "method", "seeds", *spread, "seconds", "image_bytes", "total_bytes"])
    for row in rows:
        intervals = (row.accuracy, row.difference, row.forgetting, row.learning)
        numbers = [number for interval in intervals for number in _numbers(interval)]
        words = [for_csv(describe_protocol(row.protocol)), for_csv(row.name), len(row.seeds)]
        writer.writerow([*words, *numbers, round(row.seconds["total"], 3), row.image_bytes, row.total_bytes])
    return text.getvalue().rstrip("\n")


def as_latex(rows: Sequence[Row]) -> str:
    """Return a LaTeX table for each protocol, which needs the package booktabs."""
    blocks = []
    for protocol, own in by_protocol(rows).items():
        body = [_latex_line(_cells(row)) for row in own]
        columns = "l" + "r" * (len(HEADINGS) - 1)
        lines = [f"\\begin{{tabular}}{{{columns}}}", "\\toprule", _latex_line(HEADINGS), "\\midrule", *body]
        blocks.append("\n".join([f"% {_one_line(protocol)}", *lines, "\\bottomrule", "\\end{tabular}"]))
    return "\n\n".join(blocks)


FORMATS: dict[str, Callable[[Sequence[Row]], str]] = {"md": as_markdown, "csv": as_csv, "latex": as_latex}


def by_protocol(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows in groups that can be compared, by their protocol in words."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(describe_protocol(row.protocol), []).append(row)
    return found


def _cells(row: Row) -> list[str]:
    return [
        _one_line(row.name),
        str(len(row.seeds)),
        str(row.accuracy),
        row.difference.signed(len(row.seeds)) if row.difference else "",
        str(row.forgetting),
        str(row.learning),
        f"{row.seconds['total']:.0f}",
        f"{row.total_bytes:,}",
    ]


def _numbers(interval: Interval | None) -> list[float | str]:
    if interval is None:
        return ["", ""]
    return [round(interval.mean, 4), "" if interval.half_width is None else round(interval.half_width, 4)]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        **{letter: f"\\{letter}" for letter in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "–": "--",
    }
)


def _latex_line(cells: Sequence[str]) -> str:
    return f"{' & '.join(cell.translate(_LATEX) for cell in cells)} \\\\"
