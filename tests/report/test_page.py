"""The HTML report: what is on it, and that it works in a browser without a network."""

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
from engram.experiment.run import run
from engram.paper.catalogue import EXPERIMENTS
from engram.paper.grid import finished_below
from engram.paper.outcome import gather
from engram.paper.scales import SMOKE
from engram.report.page import page
from engram.report.svg import Axis, Series, heat_map, line_chart, number, scatter_chart, stacked_bars

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SSD = {"net": {"width": 8}, "theta": {"width": 4}, "summarize": {"queue": 8, "ready": 4, "interval": 2}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    common: dict[str, Any] = {"dataset": "digits", "tasks": 3, "images_per_class": 20, "memory_size": 6}
    for seed in (0, 1):
        run(RunConfig("scr", seed=seed, settings={"net": {"width": 8}}, **common), root / f"scr-{seed}")
    run(RunConfig("scr+ssd", keep_originals=True, settings=SSD, **common), root / "ssd-0")
    table = gather("components", EXPERIMENTS["components"], SMOKE, finished_below(root), 1)
    (root / "components.json").write_text(json.dumps(table.to_json()))
    (root / "components.md").write_text(table.to_markdown())
    return root


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
        if tag == "svg":
            self.drawings.append(facts)
        if tag not in ("img", "meta", "link", "input", "br", "line", "circle", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("line", "circle", "polyline"):
            assert self.open.pop() == tag


def outline(text: str) -> Outline:
    found = Outline()
    found.feed(text)
    assert found.open == []
    return found


def test_everything_is_there_and_comes_from_the_results(runs: Path) -> None:
    text = page(runs)
    seen = outline(text)
    results = [json.loads(file.read_text()) for file in sorted(runs.rglob("result.json"))]
    scr = [result["average_end_accuracy"] for result in results if result["method"] == "scr"]
    assert f"{sum(scr) / 2:.1f} ±" in text
    for title in (
        "Accuracy over the tasks seen, after each task",
        "Accuracy for the bytes of all state",
        "Accuracy for the seconds of a run",
        "Seconds of a run by part",
        "Bytes held by part",
        "Loss of summarizing",
        "scr+ssd, seed 0: accuracy on each task, after each task",
        "What dynamic memory, summarizing and past assistance add, smoke (partial)",
    ):
        assert title in text
    assert "missing" in text
    assert "paper 12.1" in text
    matrix = results[0]["accuracy_matrix"]
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


def test_axes_place_values_and_choose_round_ticks() -> None:
    axis = Axis([0, 50], False, 100, 200, from_zero=True)
    assert axis.place(0) == 100
    assert axis.place(50) < 200
    assert axis.ticks() == [0, 10, 20, 30, 40, 50]
    logarithmic = Axis([1, 1000], True, 0, 100)
    steps = [logarithmic.place(value) for value in (1, 10, 100, 1000)]
    assert steps[1] - steps[0] == pytest.approx(steps[3] - steps[2])
    assert {1, 10, 100, 1000} <= set(logarithmic.ticks())
    assert 0 <= Axis([7], False, 0, 1).place(7) <= 1


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
    assert "Accuracy over the tasks" in (tmp_path / "results.html").read_text()
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
