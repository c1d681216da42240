"""Small things that a user meets: what a message says, what a bar counts, what is not said."""

import io
import json
import logging
from pathlib import Path

import pytest
import torch
from rich.console import Console

from engram.cli import main
from engram.cli.progress import RunProgress
from engram.experiment.demo import demo_config
from engram.experiment.run import batch_counts, stream_of

QUICK = ["--tasks", "2", "--images-per-class", "20", "--memory-size", "10", "--net.width", "8"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["scr", "digits", "--summarize.interval", "3"],
            "scr does not summarize, so it takes no --summarize",
        ),
        (["er", "digits", "--theta.width", "8"], "er does not summarize, so it takes no --theta.width; er+ssd does"),
        (["er", "digits", "--augment.n-ops", "2"], "er has no augmentation, so it takes no --augment.n-ops; rar does"),
        (["er", "digits", "--scheme.replya", "2"], "unknown option --scheme.replya: did you mean '--scheme.replay'?"),
        (
            ["er", "digits", "--memory-size", "zero"],
            "memory_size is 'zero': need a whole number of at least 1",
        ),
    ],
)
def test_options_that_cannot_be_are_explained(options: list[str], message: str, capsys) -> None:
    with pytest.raises(SystemExit) as left:
        main(["run", *options])
    assert left.value.code == 2
    assert message in capsys.readouterr().err


def test_a_slip_of_list_is_recognized(capsys) -> None:
    assert main(["paper", "lst"]) == 1
    assert "unknown table or figure 'lst': did you mean 'list'?" in capsys.readouterr().err


def test_looking_at_a_memory_says_nothing_of_threads_and_compare_tells_the_protocol(
    tmp_path: Path, capsys, caplog: pytest.LogCaptureFixture
) -> None:
    out = str(tmp_path / "run")
    assert main(["run", "er", "digits", *QUICK, "--threads", "1", "--out", out]) == 0
    capsys.readouterr()
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        with caplog.at_level(logging.WARNING):
            assert main(["memory", "show", out]) == 0
    finally:
        torch.set_num_threads(before)
    assert not caplog.messages
    assert "bytes: images 10,240" in capsys.readouterr().out
    assert main(["compare", out, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["protocol"]["classes_per_task"] == 2
    assert row["protocol"]["images_per_class"] == 20


def test_the_number_of_batches_does_not_change_while_runs_start() -> None:
    """Seeds have streams of different lengths; they are counted before the first run starts."""
    configs = [demo_config(method, seed) for seed in range(3) for method in ("scr", "scr+ssd")]
    totals = batch_counts(configs)
    assert totals == [stream_of(config).batch_count for config in configs]
    assert len(set(totals)) > 1
    finished = [False] * 5 + [True]
    progress = RunProgress([""] * 6, Console(force_terminal=True, file=io.StringIO()), totals, finished)
    assert progress.bar is not None
    shown = set()
    for job in range(5):
        progress(job, {"event": "start", "done": 10 * job, "total": totals[job], "tasks": 5})
        progress(job, {"event": "batch"})
        shown.add(progress.bar.tasks[0].total)
    assert shown == {sum(totals)}
    assert progress.bar.tasks[0].completed == 100 + 5 + totals[5]
    assert progress.summary() == f"stopped after {105 + totals[5]} of {sum(totals)} batches"
