"""What may happen to a run: two at once, a signal, divergence, a folder that is full, read-only or gone."""

import dataclasses
import errno
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engram import InputError, Learner
from engram.base.errors import NonFiniteLossError
from engram.cli import main
from engram.experiment.config import RunConfig
from engram.experiment.run import Interrupted, run
from engram.experiment.save_interval import SaveInterval, SaveTimer
from engram.persistence.checkpoint import CheckpointError
from engram.persistence.lock import exclusive_lock
from engram.testing import fingerprint
from tests.helpers import feed, small_learner, start_engram, toy_images, toy_stream

CONFIG = RunConfig("er", tasks=2, images_per_class=20, memory_size=4, settings={"net": {"width": 8}})


def test_a_folder_has_one_run_at_a_time(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path), pytest.raises(InputError, match="another process runs in"):
        run(CONFIG.replace(dataset="nowhere: it is not looked for"), tmp_path, resume=True)
    assert run(CONFIG, tmp_path, resume=True).images_seen == 80


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from engram.persistence.lock import exclusive_lock\n"
        "with exclusive_lock(Path(sys.argv[1])): print('locked', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    with pytest.raises(InputError, match="another process"), exclusive_lock(tmp_path):
        pass
    process.kill()
    process.wait()
    with exclusive_lock(tmp_path):
        pass


def test_sigterm_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    process = start_engram("run", "er", "digits", "--net.width", "8", "--out", str(tmp_path / "run"))
    while not (tmp_path / "run" / "events.jsonl").exists():
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "--resume" in shown
    assert (tmp_path / "run" / "checkpoint" / "CURRENT").exists()


def started(out: Path, **options: Any) -> subprocess.Popen[str]:
    """A run that has begun to learn; SIGHUP reaches it even if the tests themselves ignore it."""

    def heed() -> None:
        signal.signal(signal.SIGHUP, options.get("hangup", signal.SIG_DFL))

    process = start_engram("run", "er", "digits", "--net.width", "8", "--out", str(out), preexec_fn=heed)
    while not (out / "events.jsonl").exists():
        time.sleep(0.02)
        assert process.poll() is None
    return process


def test_sighup_saves_like_sigterm(tmp_path: Path) -> None:
    process = started(tmp_path / "run")
    process.send_signal(signal.SIGHUP)
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 129
    assert "--resume" in shown
    assert Learner.load(tmp_path / "run").iteration > 0


def test_nohup_still_protects_from_sighup(tmp_path: Path) -> None:
    process = started(tmp_path / "run", hangup=signal.SIG_IGN)
    process.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143


def test_a_closed_terminal_does_not_keep_a_run_from_saving(tmp_path: Path) -> None:
    """It can no longer write what it does, and is told to stop by SIGHUP."""
    master, terminal = pty.openpty()
    options = ["er", "digits", "--net.width", "8", "--out", str(tmp_path / "run")]
    command = [sys.executable, "-m", "engram", "run", *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TERM": "xterm"}
    streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}

    def heed() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(command, env=environment, start_new_session=True, preexec_fn=heed, **streams)
    os.close(terminal)
    while not (tmp_path / "run" / "events.jsonl").exists():
        assert process.poll() is None
        if select.select([master], [], [], 0.02)[0]:
            os.read(master, 10_000)
    os.close(master)
    assert process.wait(timeout=60) == 129
    assert Learner.load(tmp_path / "run").iteration > 0


def test_a_second_signal_ends_a_run_at_once_and_without_a_traceback(tmp_path: Path) -> None:
    code = (
        "import os, signal, time; from engram.cli.stopping import stop_on_signal\n"
        "with stop_on_signal() as should_stop:\n"
        "    for _ in range(2): os.kill(os.getpid(), signal.SIGTERM); print(should_stop(), flush=True)\n"
        "    time.sleep(60)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.returncode == 143
    assert done.stdout == "True\n"
    assert done.stderr == "engram: ended at once; what was saved last is there\n"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [(MemoryError(), 1, "out of memory"), (KeyboardInterrupt(), 130, "interrupted")],
    ids=["memory", "ctrl-c"],
)
def test_commands_end_with_a_line_and_not_with_a_traceback(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("engram.cli.compare_command.read_runs", fail)
    assert main(["compare", "x"]) == code
    assert said in capsys.readouterr().err


def test_a_count_beyond_what_torch_can_draw_is_refused_when_loading(tmp_path: Path) -> None:
    learner = feed(small_learner("er"), toy_stream(1, 2))
    learner.memory.seen = 10**30
    learner.save(tmp_path)
    with pytest.raises(CheckpointError, match=r"Store\.seen is 1000"):
        Learner.load(tmp_path)
    with pytest.raises(InputError, match="seen is 1000"):
        dataclasses.replace(feed(small_learner("er"), toy_stream(1, 2)).export_memory(), seen=10**30)


@pytest.mark.parametrize("change", [{"task": "x"}, {"batch": 10**9}, {"matrices": {}}, {"images_seen": -1}, None])
def test_a_checkpoint_that_does_not_say_where_the_run_was_is_refused(change: Any, tmp_path: Path) -> None:
    on_event, should_stop = stop_after(3)
    with pytest.raises(Interrupted):
        run(CONFIG, tmp_path / "run", on_event=on_event, should_stop=should_stop)
    learner, extra = Learner.load_with_extra(tmp_path / "run")
    learner.save(tmp_path / "run" / "checkpoint", extra=None if change is None else extra | change)
    with pytest.raises(CheckpointError, match="does not say where the run was"):
        run(CONFIG, tmp_path / "run", resume=True)


def test_divergence_names_the_batch_and_keeps_the_last_checkpoint(tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    options = [
        "digits",
        "--tasks",
        "2",
        "--net.width",
        "8",
        "--scheme.learning-rate",
        "1e9",
        "--checkpoint-every",
        "1b",
    ]
    assert main(["run", "er", *options, "--out", str(out)]) == 1
    error = capsys.readouterr().err
    assert "NonFiniteLossError" in error
    batch = int(error.split("at batch ")[1].split(":")[0])
    assert Learner.load(out / "checkpoint").iteration == batch
    assert not (out / "result.json").exists()


def test_divergence_of_the_summaries_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = feed(small_learner(summarize={"queue": 4, "interval": 1}), toy_stream(1, 8))
    monkeypatch.setattr(
        "engram.summarize.matching.gradients.gradient_terms",
        lambda theta, images, *rest: (images.sum() * float("nan"), images.sum() * 0),
    )
    with pytest.raises(NonFiniteLossError, match=r"the loss of a summary is .*nan.* at batch 8"):
        learner.observe(toy_images([0, 1], 99), [0, 1])


def stop_after(batches: int):
    heard: list[int] = []

    def on_event(event: dict) -> None:
        if event["event"] == "batch":
            heard.append(1)

    return on_event, lambda: len(heard) >= batches


def test_a_full_disk_stops_the_run_and_it_goes_on_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    whole = run(CONFIG, tmp_path / "whole")
    on_event, should_stop = stop_after(3)
    with pytest.raises(Interrupted):
        run(CONFIG, out, on_event=on_event, should_stop=should_stop)
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
        with pytest.raises((CheckpointError, OSError), match="No space left"):
            run(CONFIG, out, resume=True)
    assert dataclasses.replace(run(CONFIG, out, resume=True), seconds=whole.seconds) == whole


def test_a_folder_that_vanishes_is_said(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    observe = Learner.observe

    def vanish(self, x, y) -> None:
        observe(self, x, y)
        shutil.rmtree(out, ignore_errors=True)

    monkeypatch.setattr(Learner, "observe", vanish)
    options = ["digits", "--tasks", "1", "--net.width", "8", "--checkpoint-every", "2b", "--out", str(out)]
    assert main(["run", "er", *options]) == 1
    assert str(out) in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to read-only folders")
def test_a_read_only_folder_is_said(tmp_path: Path, capsys) -> None:
    tmp_path.chmod(0o500)
    try:
        assert main(["run", "er", "digits", "--out", str(tmp_path / "run")]) == 1
    finally:
        tmp_path.chmod(0o700)
    assert "Permission denied" in capsys.readouterr().err


def test_a_path_that_is_a_file_is_said(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").touch()
    assert main(["run", "er", "digits", "--out", str(tmp_path / "file" / "run")]) == 1
    assert "file" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match="could not be saved"):
        feed(small_learner("er"), toy_stream(1, 1)).save(tmp_path / "file")


def test_events_cut_off_in_mid_line_stay_readable(tmp_path: Path) -> None:
    on_event, should_stop = stop_after(3)
    with pytest.raises(Interrupted):
        run(CONFIG, tmp_path / "run", on_event=on_event, should_stop=should_stop)
    events = tmp_path / "run" / "events.jsonl"
    events.write_bytes(events.read_bytes()[:-7])
    run(CONFIG, tmp_path / "run", resume=True)
    torn, *lines = [line for line in events.read_text().splitlines() if line]
    assert not torn.endswith("}")
    assert [json.loads(line)["event"] for line in lines] == ["start", "task", "task", "end"]


@pytest.mark.parametrize(
    ("text", "every"),
    [
        ("60", SaveInterval(seconds=60)),
        ("0.5s", SaveInterval(seconds=0.5)),
        ("500b", SaveInterval(batches=500)),
        ("3 batches", SaveInterval(batches=3)),
    ],
)
def test_how_often_to_save_can_be_said(text: str, every: SaveInterval) -> None:
    assert SaveInterval.parse(text) == every


@pytest.mark.parametrize("text", ["0", "-3", "1.5b", "often", ""])
def test_nonsense_about_saving_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="checkpoint_every"):
        SaveInterval.parse(text)


def test_saves_by_batches_come_when_due() -> None:
    due = SaveTimer(SaveInterval(batches=3))
    assert [due.after_batch() for _ in range(7)] == [False, False, True, False, False, True, False]


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:, :, ::-1],
        lambda x: x.transpose(0, 1, 3, 2),
        lambda x: np.broadcast_to(x[:1], x.shape),
        lambda x: np.asfortranarray(x),
    ],
)
def test_arrays_of_any_strides_and_read_only_are_fine(view) -> None:
    x = toy_images([0, 1], 0)
    given = view(x)
    given.flags.writeable = False
    learner, other = small_learner("er"), small_learner("er")
    learner.observe(given, [0, 1])
    other.observe(np.ascontiguousarray(given), [0, 1])
    assert fingerprint(learner) == fingerprint(other)


@pytest.mark.parametrize("method", ["lwf", "ewc++", "ocm", "scr+ssd"])
def test_a_boundary_said_twice_is_one(method: str) -> None:
    learner = feed(Learner(method, memory_size=8, net={"width": 8}), toy_stream(1, 3))
    learner.boundary()
    once = fingerprint(learner)
    learner.boundary()
    assert fingerprint(learner) == once
    learner.observe(toy_images([0, 1], 7), [0, 1])
    before = fingerprint(learner)
    learner.boundary()
    assert fingerprint(learner) != before


def test_labels_beyond_int64_are_fine(tmp_path: Path) -> None:
    labels = [2**70, -(2**65)]
    learner = small_learner("er")
    for index in range(3):
        learner.observe(toy_images([0, 1], index), labels)
    learner.save(tmp_path)
    assert Learner.load(tmp_path).labels == labels
    assert set(learner.predict(toy_images([0, 1], 9))) <= set(labels)
