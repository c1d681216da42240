"""One self-contained HTML page about runs: tables, curves, costs, and the memory over time. It needs no network."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from engram.base.errors import InputError
from engram.evaluation.metrics import Interval
from engram.experiment.events import summarizing_losses
from engram.experiment.pictures import LARGEST_SHEET, snapshots
from engram.experiment.result import RunResult, read_json
from engram.options import describe_limit
from engram.persistence.files import read_plain
from engram.report.charts import Series, line_chart, scatter_chart
from engram.report.html import Html, html
from engram.report.html_charts import heat_map, scrolling, stacked_bars
from engram.report.provenance import how_made
from engram.report.tables import Row, Run, compare, describe_protocol, few_seeds, read_runs, runs_below

MOST_SHEETS = 60
"""Most pictures of one memory on a page. If there are more tasks, some are left out, but never the last."""
LARGEST_PICTURE = 1 << 24
"""Most bytes of a picture that is put on the page."""


def read_paper_tables(path: Path) -> list[dict[str, Any]]:
    """Return the tables that `engram paper` wrote to a JSON file, or anywhere below a folder."""
    below = (file for file in sorted(path.rglob("*.json")) if file.with_suffix(".md").is_file())
    contents = map(read_json, below) if path.is_dir() else [read_json(path, follow=True)]
    return [content for content in contents if _is_table(content)]


def _is_table(content: Any) -> bool:
    return isinstance(content, dict) and {"title", "scale", "complete", "columns", "rows", "remarks"} <= content.keys()


def page(path: Path) -> str:
    """Return the HTML page about a run folder, a folder of runs, or a JSON file of results."""
    tables = read_paper_tables(path)
    found = runs_below(path) if tables and path.is_dir() else read_runs([path])
    runs = _distinct(found)
    sections = [("Tables of the paper", _paper_tables(tables, path))]
    for number, (protocol, own) in enumerate(_by(lambda result: describe_protocol(result.protocol), runs).items(), 1):
        facts = own[0].result.protocol
        title = f"{facts['dataset']}, {facts['stream']} stream, {facts['tasks']} tasks, {describe_limit(facts)}"
        sections.append((title, [f"<p class='soft'>{html(protocol)}</p>", *_protocol_section(own, number)]))
    body = "".join(
        f"<section aria-labelledby='s{index}'><h2 id='s{index}'>{html(title)}</h2>{''.join(blocks)}</section>"
        for index, (title, blocks) in enumerate(sections)
        if blocks
    )
    left_out = len(found) - len(runs)
    count = f"{len(runs)} finished runs" + (
        f"; {left_out} more of the same configuration and seed are left out" if left_out else ""
    )
    return _PAGE.format(
        title=html(path.resolve().name), count=html(count), body=body, css=_asset("page.css"), js=_asset("page.js")
    )


def _distinct(runs: Sequence[Run]) -> list[Run]:
    """Return the first run of each method, settings, protocol and seed."""
    kept: dict[tuple[Any, ...], Run] = {}
    for run in runs:
        kept.setdefault((run.result.group, run.result.seed), run)
    return list(kept.values())


def _by(key: Callable[[RunResult], Any], runs: Sequence[Run]) -> dict[Any, list[Run]]:
    """Return the runs in groups of the same key, in order of appearance."""
    found: dict[Any, list[Run]] = {}
    for run in runs:
        found.setdefault(key(run.result), []).append(run)
    return found


def _protocol_section(runs: list[Run], number: int) -> list[str]:
    rows = compare([run.result for run in runs])
    groups = list(_by(lambda result: result.group, runs).values())
    names = [row.name for row in rows]
    curves = [Series(name, *_mean_curve(group)) for name, group in zip(names, groups, strict=True)]
    blocks = [
        _comparison(rows),
        line_chart("Average accuracy on the tasks seen, after each task", "tasks", "accuracy %", curves),
        "<p class='remarks'>Bands are 95 % intervals over seeds.</p>" if any(one.band for one in curves) else "",
        scatter_chart(
            "Accuracy and bytes of all state",
            "bytes",
            "accuracy %",
            [Series(row.name, [(float(row.total_bytes), row.accuracy.mean)]) for row in rows],
            unit="B",
        ),
        scatter_chart(
            "Accuracy and seconds per run",
            "seconds",
            "accuracy %",
            [Series(row.name, [(row.seconds["total"], row.accuracy.mean)]) for row in rows],
            unit="s",
        ),
        stacked_bars("Seconds per run, by part", [(row.name, parts(row.seconds)) for row in rows], "s"),
        stacked_bars(
            "Bytes of state, by part",
            [(name, parts(group[0].result.footprint)) for name, group in zip(names, groups, strict=True)],
            "B",
        ),
    ]
    firsts = {name: group[0] for name, group in zip(names, groups, strict=True)}
    for name, first in firsts.items():
        title = f"{name}, seed {first.result.seed}: accuracy on each task, after each task"
        blocks.append(heat_map(title, first.result.evaluation.matrix))
    blocks.append(_loss_curves(firsts))
    blocks += [_memory(name, first, f"{number}-{index}") for index, (name, first) in enumerate(firsts.items())]
    blocks += [how_made(name, group) for name, group in zip(names, groups, strict=True)]
    return [block for block in blocks if block]


def _mean_curve(group: list[Run]) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Return the mean after each task, and the ends of its interval, cut at 0 and 100; no ends for a single seed."""
    curves = [run.result.evaluation.average_accuracy_after_task for run in group]
    means = [Interval.of(list(values)) for values in zip(*curves, strict=True)]
    points = [(task + 1.0, interval.mean) for task, interval in enumerate(means)]
    if any(interval.half_width is None for interval in means):
        return points, []
    halves = [(interval.mean, interval.half_width or 0.0) for interval in means]
    return points, [(max(mean - half, 0.0), min(mean + half, 100.0)) for mean, half in halves]


def parts(amounts: Mapping[str, float]) -> dict[str, float]:
    """Return the parts of an amount, and under "other" what its total has beyond them."""
    parts = {name: float(value) for name, value in amounts.items() if name != "total" and value > 0}
    other = amounts.get("total", 0.0) - sum(parts.values())
    return parts | ({"other": other} if other > 0.001 * amounts.get("total", 0.0) else {})


def _comparison(rows: Sequence[Row]) -> str:
    head = ("method", "seeds", "end accuracy %", "difference", "forgetting %", "…all tasks", "learning %")
    cells = [
        (
            row.name,
            str(len(row.seeds)),
            str(row.accuracy),
            row.difference.signed(len(row.seeds)) if row.difference else "",
            str(row.forgetting),
            str(row.forgetting_all_tasks),
            str(row.learning),
        )
        for row in rows
    ]
    remarks = ["± is a 95 % t-interval over seeds; differences are to the first row, paired by seed.", few_seeds(rows)]
    return _table(head, cells) + f"<p class='remarks'>{html(' '.join(filter(None, remarks)))}</p>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; cells are texts, or HTML already."""
    top = "".join(f"<th scope='col'>{html(name)}</th>" for name in head)
    body = "".join(f"<tr><th scope='row'>{html(first)}</th>{_cells(head[1:], rest)}</tr>" for first, *rest in rows)
    return scrolling(f"<table class='cards'><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>")


def _cells(names: Sequence[str], values: Sequence[str]) -> str:
    """Return cells that carry the name of their column, which a narrow screen shows beside them."""
    named = zip(names, values, strict=True)
    return "".join(f"<td data-name='{html(name)}'>{html(value)}</td>" for name, value in named)


def _paper_tables(tables: Sequence[dict[str, Any]], path: Path) -> list[str]:
    try:
        return [_paper_table(table) for table in tables]
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise InputError(f"{path} has a table of the paper that this version cannot read: {error}") from error


def _paper_table(table: dict[str, Any]) -> str:
    measures = list(dict.fromkeys(cell["measure"] for row in table["rows"] for cell in row["cells"]))
    head = ["", *(f"{column}, {measure}" for column in table["columns"] for measure in measures)]
    rows = []
    for row in table["rows"]:
        cells = {(cell["column"], cell["measure"]): cell for cell in row["cells"]}
        shown = [_paper_cell(cells.get((column, measure))) for column in table["columns"] for measure in measures]
        rows.append([str(row["row"]), *shown])
    partial = "" if table["complete"] else " (partial)"
    title = f"<h3>{html(table['title'])}, {html(table['scale'])}{partial}</h3>"
    remarks = "".join(f"<li>{html(remark)}</li>" for remark in table["remarks"])
    return f"{title}{_table(head, rows)}<ul class='remarks'>{remarks}</ul>"


def _paper_cell(cell: dict[str, Any] | None) -> Html:
    if cell is None:
        return Html()
    text = "missing" if cell["mean"] is None else str(Interval(cell["mean"], cell["half_width"], cell["seeds"]))
    if cell["seeds"] and cell["missing"]:
        text += f" ({cell['seeds']} of {cell['seeds'] + cell['missing']} seeds)"
    if cell["difference"] is not None:
        difference = Interval(cell["difference"], cell["difference_half_width"], cell["difference_seeds"])
        text += f" [{difference.signed(cell['seeds'])}]"
    if not cell["paper"]:
        return html(text)
    mean, spread = cell["paper"]
    published = f"paper {mean}{'' if spread is None else f' ± {spread}'}"
    return Html(f"{html(text)}<br><span class='soft'>{html(published)}</span>")


def _loss_curves(runs: dict[str, Run]) -> str:
    series = []
    for name, run in runs.items():
        rounds = summarizing_losses(run.folder) if run.folder else []
        if rounds:
            series.append(Series(name, [(float(batch), sum(terms.values())) for batch, terms in rounds]))
    return line_chart("Loss of summarizing", "batch", "loss", series, log_y=True)


def _memory(name: str, run: Run, identity: str) -> str:
    sheets = snapshots(run.folder) if run.folder else []
    if not sheets:
        return ""
    sheets = sheets[:: -max(1, -(-len(sheets) // MOST_SHEETS))][::-1]
    seed = html(run.result.seed)
    above = ", original images above the current ones" if run.result.config.options["keep_originals"] else ""
    frames = "".join(
        f"<div class='frame' data-when='after task {task}'>"
        f"<img alt='The memory of {html(name)}, seed {seed}, after task {task}: its images by class, "
        f"{LARGEST_SHEET} at most{above}' "
        f"src='data:image/png;base64,{base64.b64encode(read_plain(path, LARGEST_PICTURE)).decode()}'></div>"
        for task, path in sheets
    )
    last = len(sheets) - 1
    return (
        f"<figure class='memory'><figcaption>The memory of {html(name)}, seed {seed}: "
        f"<output for='m{identity}'></output></figcaption><label for='m{identity}'>over time</label>"
        f"<input id='m{identity}' type='range' min='0' max='{last}' value='{last}' step='1'>{frames}</figure>"
    )


def _asset(name: str) -> str:
    return (files("engram.report") / name).read_text(encoding="utf-8")


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><title>{title}: engram report</title><style>{css}</style></head>
<body><main><h1>engram report: {title}</h1><p class="soft">{count}.</p>{body}</main><script>{js}</script></body></html>
"""
