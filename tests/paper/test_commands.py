"""Every paper command, at the smallest scale; one folder, so that tables share their runs."""

import json
import os
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from engram.cli import main, paper_command
from engram.experiment.config import RunConfig
from engram.paper.catalogue import EXPERIMENTS
from engram.paper.grid import Cell
from engram.paper.plan import select_cells
from engram.paper.scales import SMOKE
from tests.helpers import start_engram


class InThisProcess:
    """An engine for tests: no process to start, every job done when it is submitted."""

    workers = 1

    def __init__(self, workers: int | None = None) -> None:
        pass

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments))
        except Exception as error:  # as a pool would hand it on
            future.set_exception(error)
        return future

    def close(self) -> None:
        pass


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_command, "LocalEngine", InThisProcess)


def paper(name: str, out: Path, *options: str) -> int:
    return main(["paper", name, "--scale", "smoke", "--out", str(out), *options])


def test_every_command_runs_and_shows_every_cell(
    here: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one folder, so that tables share their runs; what is finished is not run again."""
    for name, experiment in EXPERIMENTS.items():
        assert paper(name, tmp_path) == 0
        root, cells = tmp_path / "smoke", experiment.cells(SMOKE)
        content = json.loads((root / f"{name}.json").read_text())
        assert content["complete"] is True
        assert [row["row"] for row in content["rows"]] == list(dict.fromkeys(cell.row for cell in cells))
        assert set(content["columns"]) == {cell.column for cell in cells}
        shown = [cell for row in content["rows"] for cell in row["cells"]]
        runs = [cell for cell in cells if isinstance(cell.config, RunConfig)]
        averaged = 0 if "averaged" in experiment.measures else len(runs)
        assert len(shown) == len(cells) * len(experiment.measures) + averaged
        assert all(cell["mean"] is not None and cell["missing"] == 0 for cell in shown)
        assert (root / f"{name}.png").stat().st_size > 1000
        assert f"engram paper {name} --scale smoke" in (root / f"{name}.md").read_text()
    folders = {cell.folder(0) for experiment in EXPERIMENTS.values() for cell in experiment.cells(SMOKE)}
    assert len(list(tmp_path.rglob("result.json"))) == len(folders)
    assert paper("components", tmp_path) == 0
    assert all(events.read_text().count('"event": "end"') == 1 for events in tmp_path.rglob("events.jsonl"))


def test_a_part_of_a_table_is_shown_as_a_part(here: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert paper("components", tmp_path, "--only", "scr+dynamic, digits K=4") == 1
    assert "no row or column" in capsys.readouterr().err
    assert paper("components", tmp_path, "--only", "scr+dynamic digits K=4") == 0
    shown = capsys.readouterr().out
    assert "missing" in shown
    assert "Partial: 7 of 8 runs are missing" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("only", "cells"),
    [("scr", 2), ("scr cifar100 K=3", 1), ("cifar100 K=3", 2), ("scr+ssd cifar", 2), ("K=3", 4), ("K=5", 0)],
)
def test_a_name_means_the_cells_called_exactly_so_before_those_that_contain_it(only: str, cells: int) -> None:
    config = RunConfig("scr", dataset="cifar100")
    every = [Cell(row, f"cifar100 K={size}", config) for row in ("scr", "scr+ssd") for size in (3, 30)]
    assert len(select_cells(every, only)) == cells


def test_the_plan_names_cells_departures_and_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "components", "--scale", "smoke", "--dry-run", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("digits K=") == 8
    assert len(re.findall(r"digits K=\d+ +1 +0 +about \d+", shown)) == 8
    assert "departure: scr: net.width 8" in shown
    assert "8 cells of 1 seeds" in shown
    assert not list(tmp_path.iterdir())
    assert " of one core, " in shown
    plan = ["paper", "components", "--scale", "smoke", "--only", "scr digits K=4", "--dry-run", "--out", str(tmp_path)]
    assert main([*plan, "--ray", "auto"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("of one core")
    assert main(["paper", "list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in EXPERIMENTS)


def test_a_failing_cell_is_reported_and_the_rest_goes_on(
    here: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "smoke" / "digits" / "scr+dynamic-k4-net.width=8" / "seed-0"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("method: another\n")
    assert paper("components", tmp_path, "--only", "scr+dynamic digits K=") == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "failed: scr+dynamic, digits K=4, seed 0: InputError" in shown
    assert "done: scr+dynamic, digits K=20" in shown


@pytest.mark.parametrize("engine", [["--workers", "2"], ["--ray", "local"]], ids=["local", "ray"])
def test_a_sweep_killed_in_the_middle_goes_on_and_ends_as_if_nothing_had_happened(
    engine: list[str], here: None, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """SIGKILL to the whole group after the first cell."""
    if "--ray" in engine:
        pytest.importorskip("ray")
    command = ["paper", "components", "--scale", "smoke", "--out", str(tmp_path), "--only", "digits K=4", *engine]
    first = start_engram(*command, start_new_session=True)
    until = time.monotonic() + 240
    while not list(tmp_path.rglob("result.json")) and time.monotonic() < until:
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    finished = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}
    assert 1 <= len(finished) < 4
    again = start_engram(*command)
    shown, errors = again.communicate(timeout=300)
    assert again.returncode == 0, shown + errors
    shared = tmp_path_factory.mktemp("unbroken")
    assert paper("components", shared, "--only", "digits K=4") == 0
    assert len(list(tmp_path.rglob("result.json"))) == 4
    for path in tmp_path.rglob("result.json"):
        whole = json.loads((shared / path.relative_to(tmp_path)).read_text())
        assert json.loads(path.read_text()) | {"seconds": None} == whole | {"seconds": None}
    assert all(path.stat().st_mtime_ns == when for path, when in finished.items())


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    """As a terminal sends it, to the whole group."""
    command = ("paper", "baselines", "--scale", "smoke", "--out", str(tmp_path), "--workers", "1")
    process = start_engram(*command, start_new_session=True)
    until = time.monotonic() + 240
    while len(list(tmp_path.rglob("events.jsonl"))) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 130, output + errors
    assert "Traceback" not in output + errors
    assert "again:" not in output
    begun = [events.parent for events in tmp_path.rglob("events.jsonl")]
    assert all((run / "checkpoint" / "CURRENT").is_file() for run in begun)
    assert "the same command goes on" in " ".join(output.split())
    assert "Partial" in output
    assert not list(tmp_path.rglob(".stop*"))
