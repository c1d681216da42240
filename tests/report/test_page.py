"""The HTML report: what is on it, and that it works in a browser without a network."""

import dataclasses
import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from engram.cli import main
from engram.experiment.config import RunConfig
from engram.experiment.result import RunResult, read_result
from engram.experiment.run import run
from engram.paper.catalogue import EXPERIMENTS
from engram.paper.outcome import gather
from engram.paper.scales import SMOKE
from engram.paper.slices import SliceResult
from engram.report.page import page
from engram.report.svg import (
    LONGEST_LABEL,
    Axis,
    Series,
    heat_map,
    line_chart,
    number,
    scatter_chart,
    stacked_bars,
    with_unit,
)
from tests.helpers import made_result

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SSD = {"net": {"width": 8}, "theta": {"width": 4}, "summarize": {"queue": 8, "ready": 4, "interval": 2}}


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
    assert ">50.0 ± – (1 of 2 seeds)<" in text
    assert ">56.0 ± 50.8 [+2.0 ± – over 1 of them]<" in text
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
    drawn = line_chart("<b>", "x", "y", [Series("a<script>", [(0, 1), (1, 2)])])
    assert "<script>" not in drawn
    assert "<b>" not in drawn
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
    assert "[+2.0 ± – over 1 of them]" in page(tmp_path)
    committed = Path(__file__).parents[2] / "results" / "paper-small-components.json"
    text = page(committed)
    assert "What dynamic memory, summarizing and past assistance add, small" in text
    assert "Average accuracy on the tasks seen" in text


def test_many_lines_are_told_apart_by_colour_and_dashes_also_in_the_legend() -> None:
    series = [Series(f"line {index}", [(0, index), (1, index)]) for index in range(40)]
    drawn = line_chart("t", "x", "y", series)
    looks = re.findall(r'<polyline class="line (c\d)" stroke-dasharray="([^"]*)"', drawn)
    assert len(set(looks)) == 40
    assert re.findall(r'<line class="line (c\d)" stroke-dasharray="([^"]*)"', drawn) == looks


def test_points_are_named_where_there_is_room_and_in_full_in_the_legend() -> None:
    name = "scr+ssd summarize.gamma=0.125 summarize.interval=20"
    drawn = scatter_chart("t", "x", "y", [Series(name, [(0, 1)]), Series("right", [(9, 1)])])
    assert f"</span>{name}</li>" in drawn
    left, right = re.findall(r"<text class=\"small\"([^>]*)>([^<]*)<", drawn)
    assert left[1] == f"{name[: LONGEST_LABEL - 1]}…"
    assert "end" not in left[0]
    assert 'text-anchor="end"' in right[0]


def test_axes_place_values_and_choose_round_ticks() -> None:
    axis = Axis([0, 50], False, 100, 200, from_zero=True)
    assert axis.place(0) == 100
    assert axis.place(50) < 200
    assert axis.ticks() == [(0, "0"), (10, "10"), (20, "20"), (30, "30"), (40, "40"), (50, "50")]
    assert [tick for tick, _ in Axis([1, 2, 3], False, 0, 1).ticks()] == [1, 2, 3]
    assert [tick for tick, _ in Axis([1, 2, 2.5], False, 0, 1).ticks()][:2] == [1, 1.5]
    logarithmic = Axis([1, 1000], True, 0, 100)
    steps = [logarithmic.place(value) for value in (1, 10, 100, 1000)]
    assert steps[1] - steps[0] == pytest.approx(steps[3] - steps[2])
    assert {(1, "1"), (10, "10"), (100, "100"), (1000, "1k")} <= set(logarithmic.ticks())
    for ends in ([1_702_000, 1_712_000], [0.1, 0.1004], [99_990, 100_010], [-3, 0]):
        written = [text for _, text in Axis(ends, False, 0, 1).ticks()]
        assert len(set(written)) == len(written) >= 3
    assert 0 <= Axis([7], False, 0, 1).place(7) <= 1


def test_bands_lie_between_the_ends_of_the_intervals() -> None:
    drawn = line_chart("t", "x", "y", [Series("a", [(1, 50), (2, 60)], [(40, 60), (30, 90)]), Series("b", [(1, 20)])])
    (points,) = re.findall(r'<polygon class="band c0" points="([^"]*)"', drawn)
    corners = [tuple(map(float, corner.split(","))) for corner in points.split()]
    line = [tuple(map(float, at.split(","))) for at in re.findall(r'<polyline [^>]*points="([^"]*)"', drawn)[0].split()]
    assert [x for x, _ in corners] == [line[0][0], line[1][0], line[1][0], line[0][0]]
    low_1, low_2, high_2, high_1 = (y for _, y in corners)
    assert low_1 - line[0][1] == pytest.approx(line[0][1] - high_1, abs=0.2)
    assert high_2 < high_1 < low_1 < low_2, "larger values stand higher"


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
    assert "commit not recorded" in page(tmp_path / "runs")


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
    ends = "[...document.querySelectorAll('svg text')].map(t => t.getBBox()).map(b => [b.x, b.x + b.width])"
    assert all(start >= -320 and end <= 640 for start, end in view.evaluate(ends))
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
