"""The HTML report: what is on it, and that it works in a browser without a network."""

import dataclasses
import itertools
import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import matplotlib
import pytest

from engram.cli import main
from engram.experiment.config import RunConfig
from engram.experiment.result import RunResult, read_result
from engram.experiment.run import run
from engram.paper.catalogue import EXPERIMENTS
from engram.paper.outcome import gather
from engram.paper.scales import SMOKE
from engram.paper.slices import SliceResult
from engram.report.amounts import number, with_unit
from engram.report.charts import FONT_SIZE, HEIGHT, LONGEST_LABEL, Series, free_place, line_chart, scatter_chart
from engram.report.html_charts import heat_map, stacked_bars
from engram.report.page import page, parts
from tests.helpers import made_result

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SSD = {"net": {"width": 8}, "theta": {"width": 4}, "summarize": {"queue": 8, "ready": 4, "interval": 2}}
TEXTS_OUTSIDE_THEIR_CHART = """[...document.querySelectorAll('svg text')].filter(text => {
  const inner = text.getBoundingClientRect(), outer = text.closest('svg').getBoundingClientRect();
  return inner.left < outer.left || inner.right > outer.right || inner.top < outer.top || inner.bottom > outer.bottom;
}).map(text => text.textContent)"""
SMALLEST_TEXT = """Math.min(...[...document.querySelectorAll('svg text')].map(text => {
  const seen = text.getScreenCTM();
  return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(seen.a, seen.b);
}))"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    common: dict[str, Any] = {"dataset": "digits", "tasks": 3, "images_per_class": 20, "memory_size": 6}
    for seed in (0, 1):
        run(RunConfig("scr", seed=seed, settings={"net": {"width": 8}}, **common), root / f"scr-{seed}")
    result = run(RunConfig("scr+ssd", keep_originals=True, settings=SSD, **common), root / "ssd-0")
    changed = SSD["summarize"] | {"gamma": 0.125, "theta_past_images": 0, "real_images": 64, "theta_interval": 20}
    other = dataclasses.replace(result, config=result.config.replace(settings=SSD | {"summarize": changed}))
    (root / "ssd-changed").mkdir()
    (root / "ssd-changed" / "result.json").write_text(json.dumps(other.to_dict()))
    table = gather("components", EXPERIMENTS["components"], SMOKE, some_finished(), 2)
    (root / "components.json").write_text(json.dumps(table.to_json()))
    (root / "components.md").write_text(table.to_markdown())
    (root / "notes.json").write_text('{"rows": 3}')
    (root / "notes.md").write_text("of somebody's own")
    return root


def some_finished() -> dict[str, RunResult | SliceResult]:
    """Of the components at smoke: a seed of scr, two of scr+dynamic, by folder."""
    cells = {cell.row: cell for cell in reversed(EXPERIMENTS["components"].cells(SMOKE)) if cell.column == "digits K=4"}
    accuracies = {("scr", 0): 50.0, ("scr+dynamic", 0): 52.0, ("scr+dynamic", 1): 60.0}
    return {
        cells[row].folder(seed).as_posix(): made_result(cells[row].config.replace(seed=seed), accuracy)
        for (row, seed), accuracy in accuracies.items()
    }


class Outline(HTMLParser):
    """Tags that are open, and those whose rules we keep."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.drawings: list[dict[str, str | None]] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        facts = dict(attributes)
        self.addresses += [value for name, value in attributes if name in ("src", "href") and value]
        if tag == "img":
            self.images.append(facts)
        if tag == "svg" and facts.get("aria-hidden") != "true":
            self.drawings.append(facts)
        if tag not in ("img", "meta", "link", "input", "br", "line", "circle", "polyline", "polygon"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("line", "circle", "polyline", "polygon"):
            assert self.open.pop() == tag


def outline(text: str) -> Outline:
    found = Outline()
    found.feed(text)
    assert found.open == []
    return found


def test_everything_is_there_and_comes_from_the_results(runs: Path) -> None:
    text = page(runs)
    seen = outline(text)
    results = [read_result(file) for file in sorted(runs.rglob("result.json"))]
    scr = [result.average_end_accuracy for result in results if result.method == "scr"]
    assert f"{sum(scr) / 2:.1f} ±" in text
    for title in (
        "Average accuracy on the tasks seen, after each task",
        "Accuracy and bytes of all state",
        "Accuracy and seconds per run",
        "Seconds per run, by part",
        "Bytes of state, by part",
        "Loss of summarizing",
        "scr+ssd, seed 0: accuracy on each task, after each task",
        "What dynamic memory, summarizing and past assistance add, smoke (partial)",
    ):
        assert title in text
    assert "missing" in text
    assert "paper 12.1" in text
    assert ">50.0 (1 of 2 seeds)<" in text
    assert ">56.0 ± 50.8 [+2.0 over 1 of them]<" in text
    assert text.count("<h3>") == 1
    assert "<th scope='row'>scr+ssd</th>" in text
    assert "<th scope='row'>scr+ssd summarize.gamma=0.125 " in text
    matrix = results[0].evaluation.matrix
    assert all(f">{value:.1f}</td>" in text for row in matrix for value in row if value is not None)
    assert len(seen.images) == 6
    assert all(image["alt"] for image in seen.images)
    assert all(drawing["aria-label"] and drawing["role"] == "img" for drawing in seen.drawings)
    assert len(seen.drawings) == 4
    assert all(address.startswith("data:") for address in seen.addresses)
    assert not re.search(r"https?://|@import|url\(", text)


def test_names_cannot_become_markup(tmp_path: Path) -> None:
    drawn = line_chart("<b>", "<b>", "$y$", [Series("a<script>", [(0, 1), (1, 2)])])
    drawn += scatter_chart("<b>", "x", "y", [Series("a<script>$x$\x1b", [(0, 1)])])
    assert "<script>" not in drawn
    assert "<b>" not in drawn
    assert "$x$\\x1b" in drawn, "a name is not a formula, and shows its control characters"
    outline(drawn + stacked_bars("t<i>", [("r<i>", {"p<i>": 1.0})], "s"))


def test_nothing_a_run_is_called_becomes_markup(runs: Path, tmp_path: Path) -> None:
    evil = "<script>alert('1')</script>\"'><b>"
    root = tmp_path / "<script>'\"<b>"
    shutil.copytree(runs / "ssd-0", root / "run")
    result = json.loads((root / "run" / "result.json").read_text())
    result["config"] |= {"method": evil, "dataset": evil}
    result["footprint"][evil] = 7
    (root / "run" / "result.json").write_text(json.dumps(result))
    table = json.loads((runs / "components.json").read_text())
    table |= {"title": evil, "columns": [evil], "rows": [{"row": evil, "cells": []}], "remarks": [evil]}
    (root / "table.json").write_text(json.dumps(table))
    (root / "table.md").touch()
    text = page(root)
    outline(text)
    assert text.count("<script>") == 1
    assert "<b>" not in text
    assert "alert" in text


def test_a_folder_of_tables_alone_and_a_table_by_itself_are_reported_too(runs: Path, tmp_path: Path) -> None:
    for name in ("components.json", "components.md"):
        shutil.copy(runs / name, tmp_path)
    assert "[+2.0 over 1 of them]" in page(tmp_path)
    committed = Path(__file__).parents[2] / "results" / "paper-small-components.json"
    text = page(committed)
    assert "What dynamic memory, summarizing and past assistance add, small" in text
    assert "Average accuracy on the tasks seen" in text


def numbers_in(path: str) -> list[tuple[float, float]]:
    """Corners of a path of SVG."""
    return [(float(x), float(y)) for x, y in re.findall(r"[ML] ([-\d.]+) ([-\d.]+)", path)]


def drawn_lines(drawn: str) -> list[tuple[str, str, list[tuple[float, float]]]]:
    """Color, dashes and corners of each line of a chart."""
    found = re.findall(r'<g class="line c\d+">\s*<path d="([^"]*)" style="([^"]*)"', drawn)
    looks = [(re.search(r"var\(--(c\d)\)", style), re.search(r"dasharray: ([^;]*)", style)) for _, style in found]
    return [
        (color[1] if color else "", dashes[1] if dashes else "", numbers_in(path))
        for (path, _), (color, dashes) in zip(found, looks, strict=True)
    ]


def test_many_lines_are_told_apart_by_colour_and_dashes_also_in_the_legend() -> None:
    series = [Series(f"line {index}", [(0, index), (1, index)]) for index in range(40)]
    drawn = line_chart("t", "x", "y", series)
    looks = [(color, dashes.replace(",", " ")) for color, dashes, _ in drawn_lines(drawn)]
    assert len(set(looks)) == 40
    assert re.findall(r'<line style="stroke: var\(--(c\d)\)" stroke-dasharray="([^"]*)"', drawn) == looks


def test_points_are_named_where_there_is_room_and_in_full_in_the_legend() -> None:
    name = "scr+ssd summarize.gamma=0.125 summarize.interval=20"
    drawn = scatter_chart("t", "x", "y", [Series(name, [(0, 1)]), Series("right", [(9, 1)])])
    assert f"</span>{name}</li>" in drawn
    texts = {text: style for style, text in re.findall(r"<text style=\"([^\"]*)\"[^>]*>([^<]*)<", drawn)}
    assert "text-anchor: end" not in texts[f"{name[: LONGEST_LABEL - 1]}…"]
    assert "text-anchor: end" in texts["right"]


def test_names_of_points_do_not_cover_each_other() -> None:
    names = [f"method {index}" for index in range(6)]
    crowd = [Series(name, [(5e6 + index, 10 + index / 10)]) for index, name in enumerate(names)]
    drawn = scatter_chart("t", "x", "y", [*crowd, Series("far", [(9e6, 5)])])
    heights = {text: -float(y) for y, text in re.findall(r'<text [^>]* y="([^"]*)"[^>]*>([^<]*)<', drawn)}
    placed = [heights[name] for name in names]
    assert min(after - before for before, after in itertools.pairwise(placed)) >= FONT_SIZE - 0.01, "in order"
    assert free_place(0, 10, 50, (0, 100), []) == 50
    assert free_place(0, 10, 50, (0, 100), [(5, 15, 50)]) == 50 - FONT_SIZE
    assert free_place(0, 10, 5, (0, 100), [(5, 15, 5)]) == 5 + FONT_SIZE, "there is no room below"


def test_lines_go_through_their_values_on_straight_and_on_logarithmic_axes() -> None:
    ((_, _, line),) = drawn_lines(line_chart("t", "x", "y", [Series("a", [(0, 0), (1, 50), (3, 25)])]))
    assert (line[1][0] - line[0][0]) * 3 == pytest.approx(line[2][0] - line[0][0])
    assert (line[0][1] - line[2][1]) * 2 == pytest.approx(line[0][1] - line[1][1]), "y begins at zero"
    values = [(0.0, 1.0), (1.0, 10.0), (2.0, 1000.0)]
    drawn = line_chart("t", "x", "y", [Series("a", values)], log_y=True)
    ((_, _, line),) = drawn_lines(drawn)
    assert (line[0][1] - line[1][1]) * 3 == pytest.approx(line[0][1] - line[2][1])
    assert {">1<", ">10<", ">100<", ">1k<"} <= set(re.findall(r">[\dkM.]+<", drawn))


@pytest.mark.parametrize("ends", [(1_702_000, 1_712_000), (0.1, 0.1004), (99_990, 100_010), (-3, 0), (7, 7)])
def test_no_two_ticks_have_the_same_label(ends: tuple[float, float]) -> None:
    drawn = scatter_chart("t", "x", "y", [Series("a", [(end, 1.0)]) for end in ends])
    across, up = (re.findall(rf"anchor: {side}[^>]*>([-\d.kMG]+)</text>", drawn) for side in ("middle", "end"))
    assert len(set(across)) == len(across) >= len(set(ends))
    assert up == ["0", "1"]


def test_bands_lie_between_the_ends_of_the_intervals() -> None:
    drawn = line_chart("t", "x", "y", [Series("a", [(1, 50), (2, 60)], [(40, 60), (30, 90)]), Series("b", [(1, 20)])])
    (band,) = re.findall(r'<g class="band c0">.*?<path [^>]*d="([^"]*)"', drawn, flags=re.DOTALL)
    line = drawn_lines(drawn)[0][2]
    corners = [(x, y + HEIGHT) for x, y in numbers_in(band)]
    assert {x for x, _ in corners} == {x for x, _ in line}
    low_1, high_1 = (end(y for x, y in corners if x == line[0][0]) for end in (max, min))
    low_2, high_2 = (end(y for x, y in corners if x == line[1][0]) for end in (max, min))
    assert low_1 - line[0][1] == pytest.approx(line[0][1] - high_1, abs=0.2)
    assert high_2 < high_1 < low_1 < low_2, "larger values stand higher"


def test_a_chart_leaves_colors_fonts_and_identifiers_to_the_page() -> None:
    drawn = line_chart("t", "x", "y", [Series("a", [(0, 1), (1, 2)], [(0, 2), (1, 3)])])
    assert "var(--c0)" in drawn
    assert not re.search(r"#01fe|font-family|font-size|<style|xmlns|http", drawn)
    other = line_chart("another", "x", "y", [Series("a", [(0, 1), (1, 2)], [(0, 2), (1, 3)])])
    assert not set(re.findall(r' id="([^"]*)"', drawn)) & set(re.findall(r' id="([^"]*)"', other))
    with matplotlib.rc_context({"font.size": 30, "axes.grid.axis": "x", "svg.fonttype": "path"}):
        assert line_chart("t", "x", "y", [Series("a", [(0, 1), (1, 2)], [(0, 2), (1, 3)])]) == drawn


def test_texts_have_the_size_that_charts_are_laid_out_for() -> None:
    assert f"svg text {{ font-size: {FONT_SIZE}px; }}" in (files("engram.report") / "page.css").read_text()


def test_curves_of_several_seeds_have_a_band_and_of_one_seed_none(runs: Path) -> None:
    text = page(runs)
    assert text.count('class="band c0"') == 1, "scr has two seeds"
    assert 'class="band c1"' not in text
    assert "Bands are 95 % intervals over seeds." in text


def test_settings_command_version_and_commit_of_every_run_are_there(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "scr-0", tmp_path / "runs" / "scr-0")
    facts = json.loads((runs / "scr-0" / "env.json").read_text())
    facts |= {"command": ["engram", "run", "scr", "two words"], "commit": "c0ffee + changes", "torch": "<i>"}
    (tmp_path / "runs" / "scr-0" / "env.json").write_text(json.dumps(facts))
    text = page(tmp_path / "runs")
    assert "seed 0, engram 0.2.0, commit c0ffee + changes, torch &lt;i&gt;" in text
    assert "<code>engram run scr &#x27;two words&#x27;</code>" in text
    assert "images_per_class: 20" in text
    (tmp_path / "runs" / "scr-0" / "env.json").unlink()
    assert "<li>seed 0, engram 0.2.0</li>" in page(tmp_path / "runs")


def test_parts_of_an_amount_add_up_to_its_total() -> None:
    assert parts({"train": 1.0, "store": 0.0, "total": 7.0}) == {"train": 1.0, "other": 6.0}
    assert parts({"train": 3.0, "theta": 4.0, "total": 7.0}) == {"train": 3.0, "theta": 4.0}
    assert parts({"images": 8.0}) == {"images": 8.0}


def test_amounts_have_units_that_people_read() -> None:
    assert [with_unit(number(value), "B") for value in (512, 7_700_000, 1_234)] == ["512 B", "7.7 MB", "1.23 kB"]
    assert [with_unit(number(value), "s") for value in (0.5, 61, 2734)] == ["0.5 s", "61 s", "2,730 s"]
    assert "5 MB</text>" in scatter_chart("t", "bytes", "y", [Series("a", [(1e6, 1)]), Series("b", [(9e6, 1)])], "B")


def test_nothing_to_draw_is_nothing() -> None:
    assert line_chart("t", "x", "y", []) == ""
    assert scatter_chart("t", "x", "y", [Series("empty", [])]) == ""
    assert stacked_bars("t", [("r", {"p": 0.0})], "s") == ""
    assert "<td></td>" in heat_map("t", [[50.0, None], [40.0, 60.0]])
    assert [number(value) for value in (0.5, 12, 1500, 2e6)] == ["0.5", "12", "1.5k", "2M"]


def test_the_command_writes_a_page_and_refuses_what_is_not_there(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(runs), "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    results = [json.loads(file.read_text()) for file in runs.rglob("result.json")]
    (tmp_path / "results.json").write_text(json.dumps(results))
    assert main(["report", str(tmp_path / "results.json")]) == 0
    assert "Average accuracy on the tasks" in (tmp_path / "results.html").read_text()
    assert main(["report", str(tmp_path / "nowhere")]) == 1
    assert "does not exist" in capsys.readouterr().err


@pytest.fixture
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium here: install Debian's chromium to look at the page")
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield chromium
        chromium.close()


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1200, "dark")])
def test_in_a_browser_it_is_quiet_fits_and_its_slider_moves(
    width: int, scheme: str, runs: Path, tmp_path: Path, browser: Any
) -> None:
    (tmp_path / "page.html").write_text(page(runs))
    said: list[str] = []
    view = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    view.on("console", lambda message: said.append(message.text))
    view.on("pageerror", lambda error: said.append(str(error)))
    view.on("request", lambda request: said.append(request.url) if request.url.startswith("http") else None)
    view.goto(f"file://{tmp_path / 'page.html'}")
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    if width == 390:  # nothing on a phone scrolls sideways, not even within a table
        assert view.evaluate("[...document.querySelectorAll('.scroll')].every(b => b.scrollWidth <= b.clientWidth + 1)")
    assert view.evaluate(TEXTS_OUTSIDE_THEIR_CHART) == []
    assert view.evaluate(SMALLEST_TEXT) >= 10
    box = view.locator(".memory").nth(1)
    visible = "node => [...node.querySelectorAll('.frame')].filter(f => !f.hidden).map(f => f.dataset.when)"
    assert box.evaluate(visible) == ["after task 3"]
    for _ in range(20):
        view.keyboard.press("Tab")
        if box.locator("input").evaluate("node => node === document.activeElement"):
            break
    view.keyboard.press("Home")
    assert box.evaluate(visible) == ["after task 1"]
    view.keyboard.press("ArrowRight")
    assert box.evaluate(visible) == ["after task 2"]
    assert box.locator("output").inner_text() == "after task 2"
    assert said == []
    view.emulate_media(media="print")
    view.set_viewport_size({"width": 700, "height": 900})
    assert view.evaluate("[...document.querySelectorAll('.scroll')].every(b => b.scrollWidth <= b.clientWidth + 1)")
