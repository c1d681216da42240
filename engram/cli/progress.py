"""Progress of runs: a bar with rate and time left, or plain lines if the output is not a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import zip_longest
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from engram.experiment.events import Event

PLAIN_EVERY = 20.0
"""Seconds between two plain lines."""


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f} batches/s" if task.speed else "– batches/s")


class RunProgress:
    """Shows the progress of runs. Call it with the number of a job and an event of that job.

    Args:
        names: names of the jobs.
        console: console to print to.
        totals: number of batches of each job; 0 if it is known only when the job starts.
        finished: whether each job was finished before, so that it will not start.
    """

    def __init__(
        self, names: list[str], console: Console, totals: Sequence[int] = (), finished: Sequence[bool] = ()
    ) -> None:
        self.names, self.console = names, console
        self.total = list(totals) or [0] * len(names)
        self.done = [total if over else 0 for total, over in zip_longest(self.total, finished, fillvalue=False)]
        self.began = self.said = time.monotonic()
        self.skipped = 0
        self.bar: Progress | None = None
        if console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                _Rate(),
                TimeRemainingColumn(),
            )
            self.bar = Progress(*columns, console=console)
            self.bar_task = self.bar.add_task("learning", total=None)

    def __enter__(self) -> RunProgress:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar:
            self.bar.stop()

    def __call__(self, job: int, event: Event) -> None:
        if event["event"] == "start":
            self.done[job], self.total[job] = event["done"], event["total"]
            self.skipped += event["done"]
        elif event["event"] == "batch":
            self.done[job] += 1
        elif event["event"] == "task":
            accuracies = " ".join(f"{value:5.1f}" for value in event["accuracies"])
            line = (
                f"{self.names[job]:<22} task {event['task']}: average {event['average']:5.1f} %, by task {accuracies}"
            )
            self.console.print(line)
        self._show()

    def summary(self) -> str:
        """Return in words how far all jobs together have come."""
        return f"stopped after {sum(self.done)} of {sum(self.total)} batches"

    def _show(self) -> None:
        expected = sum(self.total) or None
        if self.bar:
            self.bar.update(self.bar_task, completed=sum(self.done), total=expected)
        elif expected and time.monotonic() - self.said > PLAIN_EVERY:
            self.said = time.monotonic()
            rate = (sum(self.done) - self.skipped) / (self.said - self.began)
            left = (expected - sum(self.done)) / rate if rate else 0
            self.console.print(
                f"{sum(self.done)} of {expected} batches, {rate:.1f} batches/s, about {left:.0f} s left",
            )
