"""A run: one learner learns one class-incremental stream and is scored after every task. Runs can be resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from engram import __version__
from engram.base.errors import InputError
from engram.base.part import LARGEST_COUNT
from engram.base.settings import schema_of
from engram.evaluation import Evaluation, Prequential, score_tasks
from engram.experiment.config import DataOptions, RunConfig
from engram.experiment.events import Event
from engram.experiment.folder import RunFolder
from engram.experiment.pictures import save_memory, save_snapshot, save_stream_sheet
from engram.experiment.result import RunResult
from engram.experiment.save_interval import EVERY_MINUTE, SaveInterval, SaveTimer
from engram.learner import Learner
from engram.options import LearnerOptions, Reading
from engram.persistence.checkpoint import CheckpointError, holds_checkpoint
from engram.persistence.lock import exclusive_lock, require_unlocked
from engram.persistence.state import Tree
from engram.streams import (
    DecodingStopped,
    StreamOptions,
    TaskStream,
    class_incremental,
    load_dataset,
    stop_decoding_on,
)


class Interrupted(Exception):
    """Raised when a run was asked to stop. If it had begun, it has saved a checkpoint."""


def run(
    config: RunConfig,
    out: str | Path,
    *,
    resume: bool = False,
    checkpoint_every: SaveInterval = EVERY_MINUTE,
    on_event: Callable[[Event], None] = lambda event: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> RunResult:
    """Run a configuration in a folder and return the result, which is also written there as result.json.

    Args:
        config: configuration of the run.
        out: folder of the run.
        resume: continue an interrupted run from its checkpoint, or return the result of a finished one.
        checkpoint_every: how often to save a checkpoint.
        on_event: called with each event: at the start, after every batch, round and task, and at the end.
        should_stop: called after every batch; if it returns true, the run saves and raises `Interrupted`.
    """
    out = Path(out).expanduser()
    folder = RunFolder(out)
    if not folder.is_empty() and not resume:
        raise InputError(
            f"{out} is not empty: continue the run in it with --resume, or choose another folder with --out"
        )
    require_unlocked(out)
    try:
        with stop_decoding_on(should_stop):
            stream = stream_of(config)
    except DecodingStopped:
        raise Interrupted("stopped while images were decoded") from None
    job = _Run(config.filled(stream), stream, folder, on_event)
    out.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(out):
        folder.open(job.config, stream.dataset.class_names)
        if (finished := folder.result()) is not None:
            return finished
        job.start()
        job.learn(checkpoint_every, should_stop)
        return job.finish()


def stream_of(config: RunConfig) -> TaskStream:
    """Return the stream that a run learns from. Its labels are the numbers of the classes, as in all recorded runs."""
    chosen = config.options
    shape: Any = {name: value for name, value in chosen.items() if name in schema_of(StreamOptions)}
    dataset = load_dataset(chosen["dataset"], chosen["image_size"], chosen["skip_damaged"], fit=chosen["fit"])
    stream = class_incremental(dataset.numbered(), chosen["seed"], **shape)
    for number, task in enumerate(stream.tasks, 1):
        if not len(task.test):
            raise InputError(
                f"task {number} of {chosen['dataset']} has no test image: add some, because every task is scored"
            )
    return stream


def batch_counts(configs: Iterable[RunConfig]) -> list[int]:
    """Return the number of batches of each run. Runs with the same stream share the work."""
    known: dict[str, int] = {}
    counts = []
    for config in configs:
        deciding = schema_of(StreamOptions).keys() | schema_of(DataOptions).keys() | {"seed"}
        key = repr([config.options.get(name) for name in sorted(deciding)])
        if key not in known:
            known[key] = stream_of(config).batch_count
        counts.append(known[key])
    return counts


class _Run:
    """A run in progress: the learner, its position in the stream, and what was measured so far."""

    def __init__(
        self, config: RunConfig, stream: TaskStream, folder: RunFolder, on_event: Callable[[Event], None]
    ) -> None:
        self.config, self.stream, self.folder, self.on_event = config, stream, folder, on_event
        self.learner = _make_learner(config)
        self.prequential = self._new_prequential()
        self.task, self.batch = 0, 0
        kept: tuple[Reading, ...] = ("net",) if config.options["average"] is None else ("net", "averaged")
        self.readings: dict[Reading, Evaluation] = {reading: Evaluation() for reading in kept}
        self.images_seen = 0
        self.evaluate_seconds, self.total_seconds = 0.0, 0.0
        self.started = time.perf_counter()

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation of the net that the learner answers from."""
        return self.readings[self.config.options["answer_from"] or "net"]

    def start(self) -> None:
        """Start from the beginning, or from the checkpoint if there is one."""
        if holds_checkpoint(self.folder.checkpoint):
            self.learner, at = Learner.load_with_extra(self.folder.checkpoint, self.config.options["device"])
            self.learner.options["threads"] = self.config.options["threads"]
            try:
                self._continue_from(at)
            except InputError:
                raise
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                raise CheckpointError(f"{self.folder.checkpoint} does not say where the run was: {error}") from error
        done = sum(len(task.batches) for task in self.stream.tasks[: self.task]) + self.batch
        self._event("start", total=self.stream.batch_count, done=done, tasks=len(self.stream.tasks))

    def _continue_from(self, at: Tree) -> None:
        """Take over the position in the stream and the measurements that `_checkpoint` saved."""
        if at["stream"] != self.stream.digest():
            raise InputError(
                f"{self.folder.path}: the data set has changed since the run began: run it again in a new folder"
            )
        self.task, self.batch = _within(at["task"], len(self.stream.tasks)), at["batch"]
        if self.task < len(self.stream.tasks):
            _within(self.batch, len(self.stream.tasks[self.task].batches))
        matrices: dict[Reading, Any] = at["matrices"] if "matrices" in at else {"net": at["matrix"]}
        self.readings = {reading: Evaluation(matrix) for reading, matrix in matrices.items()}
        answering = self.config.options["answer_from"] or "net"
        if answering not in self.readings or any(len(own.matrix) != self.task for own in self.readings.values()):
            raise ValueError(f"its accuracies are not those of {self.task} tasks")
        self.images_seen = _within(at["images_seen"], LARGEST_COUNT)
        self.evaluate_seconds, self.total_seconds = float(at["evaluate_seconds"]), float(at["total_seconds"])
        self.prequential = self._new_prequential()
        if self.prequential:
            self.prequential.load_state(at["prequential"])

    def learn(self, checkpoint_every: SaveInterval, should_stop: Callable[[], bool]) -> None:
        """Learn the rest of the stream."""
        timer = SaveTimer(checkpoint_every)
        while self.task < len(self.stream.tasks):
            task = self.stream.tasks[self.task]
            for x, y in self.stream.batches(task, self.batch):
                rounds = self.learner.rounds
                (self.prequential or self.learner).observe(x, y)
                self.batch += 1
                self.images_seen += len(y)
                self.on_event({"event": "batch", "task": self.task})
                if self.learner.rounds > rounds and self.learner.summarizer:
                    self._event("round", batch=self.learner.iteration, **self.learner.summarizer.last_losses)
                if should_stop():
                    self._checkpoint()
                    raise Interrupted(f"stopped after batch {self.learner.iteration}")
                if timer.after_batch():
                    self._checkpoint()
            self._end_task()

    def finish(self) -> RunResult:
        """Write the pictures and the result."""
        self.learner.tell_if_not_summarized()
        save_memory(self.learner, self.stream.dataset.class_names, self.folder.memory)
        save_stream_sheet(self.learner, self.stream, self.folder.memory)
        learner = self.learner
        result = RunResult(
            config=self.config,
            readings={str(reading): evaluation for reading, evaluation in self.readings.items()},
            classes=self.stream.class_count,
            images_seen=self.images_seen,
            memory_images=learner.memory.size,
            summarize_rounds=learner.rounds,
            seconds=learner.seconds | {"evaluate": self.evaluate_seconds, "total": self._elapsed()},
            footprint=dict(learner.footprint()),
            prequential=self.prequential.summary() if self.prequential else None,
            version=__version__,
        )
        self.folder.write_result(result)
        self._event("end", average_end_accuracy=result.average_end_accuracy)
        return result

    def _end_task(self) -> None:
        """Score the tasks seen so far, announce the end of the task if the stream does, and save."""
        start = time.perf_counter()
        seen = self.stream.tasks[: self.task + 1]
        for reading, evaluation in self.readings.items():

            def predict(x: Any, answer_from: Reading = reading) -> Any:
                return self.learner.predict(x, answer_from=answer_from)

            evaluation.add_task(score_tasks(predict, self.stream, seen), len(self.stream.tasks))
        self.evaluate_seconds += time.perf_counter() - start
        if self.config.scenario.bounded:
            self.learner.boundary()
        self.task, self.batch = self.task + 1, 0
        save_snapshot(self.learner, self.stream.dataset.class_names, self.folder.memory, self.task)
        self._checkpoint()
        tested = {"prequential": self.prequential.summary()} if self.prequential else {}
        self._event(
            "task",
            task=self.task,
            accuracies=self.evaluation.matrix[-1][: len(seen)],
            average=self.evaluation.average_end_accuracy,
            averages={reading: evaluation.average_end_accuracy for reading, evaluation in self.readings.items()},
            **tested,
        )

    def _new_prequential(self) -> Prequential | None:
        every = self.config.options["prequential"]
        return Prequential(self.learner, every) if every else None

    def _checkpoint(self) -> None:
        self.folder.require_there()
        at = {
            "stream": self.stream.digest(),
            "task": self.task,
            "batch": self.batch,
            "matrices": {reading: evaluation.matrix for reading, evaluation in self.readings.items()},
            "images_seen": self.images_seen,
            "evaluate_seconds": self.evaluate_seconds,
            "total_seconds": self._elapsed(),
            "prequential": self.prequential.state() if self.prequential else None,
        }
        self.learner.save(self.folder.checkpoint, extra=at)

    def _elapsed(self) -> float:
        return self.total_seconds + time.perf_counter() - self.started

    def _event(self, name: str, **facts: Any) -> None:
        event = {"event": name} | facts
        self.folder.append(event)
        self.on_event(event)


def _within(value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{str(value)[:20]} is not a number from 0 to {most:,}")
    return value


def _make_learner(config: RunConfig) -> Learner:
    options: Any = {name: value for name, value in config.options.items() if name in schema_of(LearnerOptions)}
    return Learner(config.method, **options | config.settings)
