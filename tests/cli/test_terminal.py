"""What commands print fits a terminal of 80 columns; tables can be taken elsewhere; runs are continued by one line."""

import csv
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from engram import InputError, Learner
from engram.cli import COMMANDS, main, run_command
from engram.experiment.run import Interrupted
from engram.methods import find_method, names
from engram.paper.catalogue import EXPERIMENTS, METHODS_COMPARED
from engram.paper.scales import FULL

QUICK = ["--tasks", "2", "--images-per-class", "20", "--memory-size", "4", "--net.width", "8", "--threads", "1"]


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of er with two settings, and one of scr."""
    folder = tmp_path_factory.mktemp("runs")
    for replay, seed in product(("1", "2"), ("0", "1")):
        out = str(folder / f"er-{replay}" / f"seed-{seed}")
        assert main(["run", "er", "digits", *QUICK, "--seed", seed, "--scheme.replay", replay, "--out", out]) == 0
    assert main(["run", "scr", "digits", *QUICK, "--out", str(folder / "scr")]) == 0
    return folder


def shown_by(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    if "--help" in arguments[1:]:
        with pytest.raises(SystemExit, match="0"):
            main(list(arguments))
    else:
        assert main(list(arguments)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [["--help"], *([command, "--help"] for command in COMMANDS), ["methods"], ["methods", "--all"], ["paper", "list"]],
    ids=" ".join,
)
def test_lines_fit_80_columns(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert [line for line in shown_by(capsys, *arguments).splitlines() if len(line) > 80] == []


def test_no_word_of_a_table_is_broken(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of settings stand below the table, which has room for the name of a method."""
    shown = shown_by(capsys, "compare", str(runs / "er-1"), str(runs / "er-2"), str(runs / "scr"))
    table = shown.split("Accuracies in %")[0].splitlines()[-8:]
    assert any(re.match(r"er \[1\] +2 +\d+\.\d ± \d+\.\d", line) for line in table)
    assert "er [2]: er scheme.replay=2" in shown
    words = set(shown_by(capsys, "methods", "--all").split())
    for name in names():
        method = find_method(name)
        assert {name, *(part.__name__ for part in method.parts().values()), *method.paper.split()} <= words


def test_methods_of_the_paper_come_first_and_combinations_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    few, every = shown_by(capsys, "methods"), shown_by(capsys, "methods", "--all")

    def listed(text: str) -> list[str]:
        known = set(names())
        return [line.split()[0] for line in text.splitlines() if line and line.split()[0] in known]

    assert listed(few)[: len(METHODS_COMPARED)] == list(METHODS_COMPARED)
    assert "er+ssd" not in listed(few)
    assert sorted(listed(every)) == sorted(names())
    assert not {"gss+gss", "aser+aser"} & set(names())
    main_table = EXPERIMENTS["main"].cells(FULL)
    assert list(dict.fromkeys(cell.row for cell in main_table)) == list(METHODS_COMPARED)


def test_a_comparison_can_be_taken_elsewhere(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [str(runs / "er-1"), str(runs / "er-2")]
    markdown = shown_by(capsys, "compare", *given, "--format", "md").splitlines()
    assert [line.count("|") for line in markdown if line.startswith("|")] == [9] * 4
    assert markdown[-1].startswith("| er scheme.replay=2 | 2 | ")
    (first, second) = csv.DictReader(io.StringIO(shown_by(capsys, "compare", *given, "--format", "csv")))
    assert (first["method"], first["seeds"], first["difference"]) == ("er scheme.replay=1", "2", "")
    difference = float(second["accuracy"]) - float(first["accuracy"])
    assert float(second["difference"]) == pytest.approx(difference, abs=2e-4)
    assert float(second["accuracy_half_width"]) >= 0
    latex = shown_by(capsys, "compare", *given, "--format", "latex")
    assert latex.count(r"\\") == 3
    assert r"accuracy \%" in latex
    assert r"$\pm$" in latex
    assert "±" not in latex
    with pytest.raises(SystemExit, match="2"):
        main(["compare", *given, "--format", "tex"])


def test_a_run_is_continued_by_its_folder_alone(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeds that had not begun are known by their empty folders."""
    monkeypatch.setattr(run_command, "_run_several", lambda jobs, *_: [job.run() for job in jobs])
    out = tmp_path / "again"
    shutil.copytree(runs / "er-1", out)
    shutil.rmtree(out / "seed-1")
    (out / "seed-1").mkdir()
    assert main(["run", "--resume", "--out", str(out)]) == 0
    assert re.search(r"^er +2 ", capsys.readouterr().out, flags=re.MULTILINE)
    for seed in ("seed-0", "seed-1"):
        assert (out / seed / "config.yaml").read_text() == (runs / "er-1" / seed / "config.yaml").read_text()
    assert main(["run", "--resume", "--out", str(runs / "scr")]) == 0
    assert re.search(r"^scr +1 ", capsys.readouterr().out, flags=re.MULTILINE)
    assert main(["run", "--resume", "--out", str(runs / "none")]) == 1
    assert "no run began in" in capsys.readouterr().err
    assert main(["run", "er", "--resume", "--out", str(runs / "scr")]) == 1
    assert "method is scr, not er" in capsys.readouterr().err


def test_the_command_to_continue_is_printed_and_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "a folder"
    command = ["run", "er", "digits", *QUICK, "--checkpoint-every", "5b", "--out", str(out)]
    with monkeypatch.context() as patched:
        whole = run_command.Job.run
        patched.setattr(run_command.Job, "run", lambda job, *_: whole(job, lambda: True))
        assert main(command) == 128
    printed = capsys.readouterr().out.strip().splitlines()[-1]
    assert shlex.split(printed) == ["engram", "run", "--resume", "--out", str(out), "--checkpoint-every=5b"]
    assert main(shlex.split(printed)[1:]) == 0


@pytest.mark.parametrize(
    ("name", "meant"),
    [("ssd", "scr+ssd"), ("SCR+SSD", "scr+ssd"), ("er_ema", "er-ema"), ("ER_ACE", "er-ace"), ("scr + ssd", "scr+ssd")],
)
def test_other_spellings_of_a_method_are_understood(name: str, meant: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"did you mean {meant!r}?")):
        Learner(name)


def test_a_plan_of_the_paper_is_quick_small_and_not_silent(tmp_path: Path) -> None:
    """The main table at full size took minutes and gigabytes when its steps were timed as they are.

    VmHWM is the process's own peak; `ru_maxrss` would begin with that of the process that started it.
    """
    code = (
        "import resource; from engram.cli import main; "
        f"main(['paper', 'main', '--scale', 'full', '--dry-run', '--out', {str(tmp_path)!r}]); "
        "used = resource.getrusage(resource.RUSAGE_SELF); "
        "peak = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')); "
        "print('seconds', used.ru_utime + used.ru_stime, 'kilobytes', peak)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert ran.returncode == 0, ran.stderr
    *_, seconds, _, kilobytes = ran.stdout.split()
    assert float(seconds) < 30, "of computing, which a busy machine does not change"
    assert int(kilobytes) < 1_000_000 * 1000 / 1024
    assert "timing a step of ocm" in ran.stdout
    assert len(re.findall(r"^timing ", ran.stdout, flags=re.MULTILINE)) < 30


def test_resuming_needs_to_know_what(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--resume"]) == 1
    assert "--resume needs --out" in capsys.readouterr().err


def test_several_runs_that_were_stopped_before_the_first_batch_promise_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise Interrupted("stopped with 0 of 2 runs finished")

    monkeypatch.setattr(run_command, "_run_several", stopped)
    main(["run", "er", "--seeds", "2", "--out", str(tmp_path / "runs")])
    assert "Nothing was begun: use the same command again" in capsys.readouterr().out
    assert main(["run", "--resume", "--out", str(tmp_path / "runs")]) == 1
