"""The commands as a user calls them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from engram import Learner
from engram.cli import COMMANDS, main
from engram.experiment.config import RunConfig, changed_settings
from engram.experiment.demo import METHODS as DEMO_METHODS
from engram.experiment.demo import demo_config, what_was_seen
from tests.helpers import start_engram
from tests.summarize.test_stream_summarizer import without_training

TINY = ["--tasks", "2", "--images-per-class", "20", "--memory-size", "4", "--net.width", "8"]
TINY_SSD = [
    *TINY,
    "--theta.width",
    "8",
    "--summarize.queue",
    "8",
    "--summarize.ready",
    "4",
    "--summarize.interval",
    "2",
]


def test_help_is_quick_to_import_and_names_every_command() -> None:
    code = "import sys, engram.cli; engram.cli.main(['--help']); assert 'torch' not in sys.modules"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert all(f"  {name}" in ran.stdout for name in COMMANDS)


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, engram; assert 'torch' not in sys.modules; engram.Learner; assert 'torch' in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: engram {command}")


def test_help_of_run_shows_every_setting_of_the_method_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "scr+ssd", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "--summarize.interval INTERVAL number of iterations between rounds" in shown
    assert "--images-per-class" in shown
    assert re.search(r"--scheme.augment.hue .*?default: 0.1", shown)


def test_run_then_compare_then_look_at_the_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "ssd"
    assert main(["run", "scr+ssd", "digits", *TINY_SSD, "--slots-per-class", "1", "--out", str(out)]) == 0
    assert "task 2" in capsys.readouterr().out
    result = json.loads((out / "result.json").read_text())
    assert changed_settings(RunConfig.from_dict(result["config"])) == {
        "net.width": 8,
        "summarize.interval": 2,
        "summarize.queue": 8,
        "summarize.ready": 4,
        "theta.width": 8,
    }
    assert main(["run", "scr", "digits", *TINY, "--slots-per-class", "1", "--out", str(tmp_path / "scr")]) == 0
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "scr"), str(out), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ["scr", "scr+ssd"]
    assert rows[1]["difference"]["half_width"] is None
    assert main(["compare", str(tmp_path)]) == 0
    assert "One seed says nothing about chance" in capsys.readouterr().out
    assert main(["memory", "show", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "4 of 4 slots filled" in shown
    assert "contact-sheet.png" in shown.replace("\n", "")


def test_config_file_of_a_run_reproduces_it(tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    assert main(["run", "scr+ssd", *TINY_SSD, "--seed", "3", "--out", str(first)]) == 0
    assert main(["run", "--config", str(first / "config.yaml"), "--out", str(again)]) == 0
    results = [json.loads((out / "result.json").read_text()) for out in (first, again)]
    for result in results:
        del result["seconds"]
    assert results[0] == results[1]
    assert (first / "config.yaml").read_text() == (again / "config.yaml").read_text()


def test_method_and_data_set_named_first_win_over_a_config_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("method: scr\ndataset: nowhere\nmemory_size: 3\ntasks: 2\nimages_per_class: 12\n")
    out = tmp_path / "run"
    assert main(["run", "er", "digits", "--config", str(file), "--net.width", "8", "--out", str(out)]) == 0
    result = json.loads((out / "result.json").read_text())
    assert tuple(result["config"][name] for name in ("method", "dataset", "memory_size")) == ("er", "digits", 3)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--config"], "--config needs a value"),
        (["--method"], "--method needs a value"),
    ],
)
def test_options_without_their_value_are_named(
    arguments: list[str],
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", *arguments]) == 1
    assert reason in capsys.readouterr().err


def test_a_config_file_that_is_no_yaml_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.yaml").write_text("[unclosed")
    assert main(["run", "--config", str(tmp_path / "broken.yaml")]) == 1
    assert "broken.yaml is not valid YAML" in capsys.readouterr().err


def test_a_demonstration_goes_on_only_in_a_folder_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--resume"]) == 1
    assert "--resume needs --out" in capsys.readouterr().err


def test_a_run_folder_is_as_good_as_the_learner_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(["run", "er", *TINY, "--out", str(out)]) == 0
    assert Learner.load(out).labels == Learner.load(out / "checkpoint").labels
    assert main(["memory", "export", str(out), str(tmp_path / "m")]) == 0
    capsys.readouterr()
    assert main(["memory", "import", str(tmp_path / "m"), str(out)]) == 1
    assert "is not empty: choose another folder" in capsys.readouterr().err


def test_seeds_run_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "scr", *TINY, "--seeds", "2", "--out", str(tmp_path / "many")]) == 0
    assert sorted(path.name for path in (tmp_path / "many").iterdir()) == ["seed-0", "seed-1"]
    assert re.search(r"scr +2 +[0-9.]+ ± ", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["rum"], 2, "did you mean 'run'"),
        (["run", "scr+sdd"], 1, "did you mean 'scr\\+ssd'"),
        (["run", "scr", "digit"], 1, "did you mean 'digits'"),
        (["compare", "nowhere"], 1, "no finished run over tasks under nowhere"),
        (["memory", "show", "nowhere"], 1, "no checkpoint in nowhere"),
    ],
)
def test_failures_say_why_in_one_line(
    arguments: list[str],
    code: int,
    reason: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == code
    error = capsys.readouterr().err
    assert re.search(reason, error)
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--summarize.intervall", "did you mean '--summarize.interval'"),
        ("--memry-size", "did you mean '--memory-size'"),
    ],
)
def test_unknown_options_suggest_the_nearest(option: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["run", "scr+ssd", option, "4"])
    assert left.value.code == 2
    assert reason in capsys.readouterr().err


def test_methods_lists_parts_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"fine-tune", "iid-offline", "er", "scr", "ocm", "rar-s", "er+ssd", "scr+gss", "scr+ssd"} <= set(listed)
    assert "iid-offline+ssd" not in listed
    assert listed["rar"]["repeats"] == 10
    assert listed["aser"]["settings"]["scheme"]["passes"] == "thrice"
    assert listed["scr+ssd"]["parts"]["summarize"] == "StreamSummarizer"
    assert listed["scr+ssd"]["settings"]["summarize"]["interval"] == 6
    assert listed["scr"]["settings"]["scheme"]["augment"]["hue"] == 0.1
    assert main(["methods"]) == 0
    assert "scr+ssd" in capsys.readouterr().out


def test_ctrl_c_saves_and_a_new_process_goes_on_exactly(tmp_path: Path) -> None:
    options = ["scr+ssd", *TINY_SSD, "--tasks", "4", "--threads", "1"]

    def start(out: Path, *more: str) -> subprocess.Popen[str]:
        return start_engram("run", *options, "--out", str(out), *more)

    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    process = start(stopped)
    while not (stopped / "events.jsonl").exists():
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    shown, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "--resume" in shown
    assert not (stopped / "result.json").exists()
    results = []
    for process, out in ((start(stopped, "--resume"), stopped), (start(whole), whole)):
        process.communicate(timeout=120)
        assert process.returncode == 0
        results.append(json.loads((out / "result.json").read_text()) | {"seconds": None})
    assert results[0] == results[1]


def living(group: int) -> list[str]:
    """Names of the processes in a process group that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = stat.read_text().partition(" (")[2].rpartition(") ")
            state, _, its_group = rest.split()[:3]
            if int(its_group) == group and state != "Z":
                found.append(name)
    return found


def begin_two_seeds(out: Path) -> subprocess.Popen[str]:
    """Two long runs, each in a process of its own, once both are under way."""
    command = ("run", "er", "digits", "--repeats", "20", "--seeds", "2", "--checkpoint-every", "1b", "--out", str(out))
    process = start_engram(*command, start_new_session=True)
    while len(list(out.rglob("CURRENT"))) < 2:
        time.sleep(0.05)
        assert process.poll() is None
    return process


def test_ctrl_c_to_the_whole_group_lets_every_seed_save(tmp_path: Path) -> None:
    process = begin_two_seeds(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    shown, errors = process.communicate(timeout=120)
    assert process.returncode == 130, shown + errors
    assert "Everything is saved" in shown
    assert "Traceback" not in shown + errors


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes under /proc")
def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    process = begin_two_seeds(tmp_path)
    assert len(living(process.pid)) > 2
    process.kill()
    process.communicate(timeout=60)
    until = time.monotonic() + 60
    while living(process.pid) and time.monotonic() < until:
        time.sleep(0.1)
    assert living(process.pid) == []


def test_what_is_printed_is_never_taken_for_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "[red]" / "[/x]"
    assert main(["run", "er", "digits", *TINY, "--out", str(out)]) == 0
    assert "/[red]/[/x]" in capsys.readouterr().out.replace("\n", "")


def test_demo_compares_with_and_without_summaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from engram.cli import demo_command

    def tiny(method: str, seed: int) -> RunConfig:
        return demo_config(method, seed).replace(tasks=2, images_per_class=30)

    monkeypatch.setattr(demo_command, "demo_config", tiny)
    assert main(["demo", "--seeds", "1", "--out", str(tmp_path / "demo")]) == 0
    shown = capsys.readouterr().out
    assert all(re.search(rf"^{re.escape(method)} +1 ", shown, flags=re.MULTILINE) for method in DEMO_METHODS)
    assert (tmp_path / "demo" / "scr+ssd" / "seed-0" / "memory" / "stream-sheet.png").is_file()
    assert "of one seed, which says nothing about chance" in shown
    assert "engram recommend --bytes 300KB --classes 100" in shown
    with pytest.raises(SystemExit, match="2"):
        main(["demo", "--seeds", "0", "--out", str(tmp_path / "none")])
    assert "seeds is 0: need a whole number of at least 1" in capsys.readouterr().err


def test_the_demonstration_says_what_was_seen_and_how_certain_it_is() -> None:
    said = what_was_seen({"scr": [50, 51, 49], "scr+dynamic": [60, 70, 62], "scr+ssd": [64, 66, 65]})
    first, second = said.splitlines()
    assert "by +15.0 ± 2.5 points, more than chance explains" in first
    assert "by +1.0 ± 10.8 points, which may be chance" in second


def test_demo_resets_at_every_task_and_has_more_than_ten_rounds_in_each(monkeypatch: pytest.MonkeyPatch) -> None:
    from engram.experiment.run import _make_learner
    from engram.streams import class_incremental, load_dataset

    stream = class_incremental(load_dataset("digits"), seed=0)
    learner = _make_learner(demo_config("scr+ssd", 0).filled(stream))
    without_training(learner, monkeypatch)
    for task in stream.tasks:
        before = learner.rounds
        for x, y in stream.batches(task):
            learner.observe(x, y)
        assert learner.rounds - before > 10
        assert len(learner.summarizer.queue.classes) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "er", "digits"],
        ["demo"],
        ["paper", "components", "--scale", "smoke"],
        ["memory", "import", "folder", "out"],
    ],
)
def test_every_command_that_trains_takes_a_device_and_refuses_one_that_is_not_there(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, "--device", "cuda:7"])
    (line, _) = capsys.readouterr().err.splitlines()
    assert "device 'cuda:7' is not available here: there is cpu" in line
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_value_gets_one_line_that_says_what_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["run", "er", "digits", "--memory-size", "zero"])
    line, hint = capsys.readouterr().err.splitlines()
    assert line == "engram run: memory_size is 'zero': need a whole number of at least 1, or none"
    assert hint == "See engram run --help"
    with pytest.raises(SystemExit, match="2"):
        main(["run", "er", "digits", "--scheme.passes", "jiont"])
    assert "did you mean 'joint'?" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["run", "er", "digits", "--devise", "cpu"])
    assert "unknown option --devise: did you mean '--device'?" in capsys.readouterr().err
