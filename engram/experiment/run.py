"""One learner over one class-incremental stream, measured after every task, resumable after any interruption.

A run folder holds config.yaml (every setting), events.jsonl (appended as things happen), result.json (when finished),
checkpoint/, memory/ (contact sheets and tensors), classes.json (their names) and env.json.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from engram.checkpoint import holds_checkpoint, replace_file, write_json
from engram.errors import InputError
from engram.experiment import metrics
from engram.experiment.config import RunConfig, differing, learner_settings, resolved
from engram.experiment.events import Event
from engram.experiment.every import EVERY_MINUTE, Due, Every
from engram.experiment.lock import LOCK, only_one, require_free
from engram.experiment.pictures import save_memory, save_snapshot, save_stream_sheet
from engram.experiment.prequential import Prequential
from engram.learner import Learner, Reading
from engram.restoring import environment
from engram.streams import Scenario, Task, TaskStream, class_incremental, load_dataset


class Interrupted(Exception):
    """The run was asked to stop; its checkpoint is complete."""


def run(
    config: RunConfig,
    out: Path,
    *,
    resume: bool = False,
    checkpoint_every: Every = EVERY_MINUTE,
    on_event: Callable[[Event], None] = lambda event: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Run `config` in the folder `out` and return the result, which is also written there as result.json.

    With `resume` an interrupted run goes on from its checkpoint and a finished one is only read. `on_event` hears of
    the start, every batch, every task and the end; when `should_stop` turns true the run saves and is `Interrupted`.
    """
    config = resolved(config)
    if out.exists() and any(path.name != LOCK for path in out.iterdir()) and not resume:
        raise InputError(f"{out} is not empty: go on with the run in it by --resume, or choose another folder by --out")
    require_free(out)
    stream = stream_of(config)
    job = _Run(config, stream, out, on_event)
    out.mkdir(parents=True, exist_ok=True)
    with only_one(out):
        job.open_folder()
        if (out / "result.json").is_file():
            finished: dict[str, Any] = json.loads((out / "result.json").read_text())
            return finished
        job.start()
        job.learn(checkpoint_every, should_stop)
        return job.finish()


def class_names_of(folder: Path) -> list[str]:
    """What the classes are called that the run in this folder numbers; none if it does not say."""
    file = folder / "classes.json"
    return [str(name) for name in json.loads(file.read_text())] if file.is_file() else []


def stream_of(config: RunConfig) -> TaskStream:
    """The stream a run learns from."""
    config = resolved(config)
    stream = class_incremental(
        load_dataset(config.dataset, config.image_size, config.skip_damaged),
        config.seed,
        config.stream or "strict",
        config.batch or 10,
        config.tasks,
        config.classes_per_task,
        config.images_per_class,
        config.epochs,
        config.class_order,
        config.instance_order,
    )
    for number, task in enumerate(stream.tasks, 1):
        if not len(task.test):
            raise InputError(f"task {number} of {config.dataset} has no test image: a run scores every task")
    return stream


class _Run:
    """The state of a run in progress: a learner, where it is in the stream and what was measured so far."""

    def __init__(self, config: RunConfig, stream: TaskStream, out: Path, on_event: Callable[[Event], None]) -> None:
        self.config, self.stream, self.out, self.on_event = config, stream, out, on_event
        self.task, self.batch = 0, 0
        self.matrices: dict[Reading, list[list[float | None]]] = {reading: [] for reading in readings_of(config)}
        self.images_seen = 0
        self.evaluate_seconds, self.total_seconds = 0.0, 0.0
        self.started = time.perf_counter()

    def open_folder(self) -> None:
        """Make the folder, or refuse one that holds a run of another configuration."""
        self.learner = _make_learner(self.config, self.stream)
        self.prequential = self._new_prequential()
        chosen = dataclasses.asdict(self.config)
        del chosen["settings"]
        complete = chosen | {name: value for name, value in self.learner.config().items() if name != "device"}
        complete = json.loads(json.dumps(complete))
        text = yaml.safe_dump(complete, sort_keys=False)
        config_file = self.out / "config.yaml"
        if config_file.is_file() and (other := differing(config_file.read_text(), complete)):
            raise InputError(
                f"{self.out} holds a run of another configuration (see config.yaml: {'; '.join(other[:5])}): use "
                "another folder"
            )
        replace_file(config_file, text.encode())
        _end_torn_line(self.out / "events.jsonl")
        write_json(self.out / "classes.json", list(self.stream.dataset.class_names))
        if not (self.out / "env.json").exists():
            write_json(self.out / "env.json", _environment())

    def start(self) -> None:
        """Begin, or go on from the checkpoint."""
        if holds_checkpoint(self.out / "checkpoint"):
            self.learner, at = Learner.load_with_extra(self.out / "checkpoint")
            if at["stream"] != self.stream.digest():
                raise InputError(f"{self.out}: the data set is not what it was when the run began: start it anew")
            self.task, self.batch = at["task"], at["batch"]
            self.matrices = at["matrices"] if "matrices" in at else {"net": at["matrix"]}
            self.images_seen = at["images_seen"]
            self.evaluate_seconds, self.total_seconds = at["evaluate_seconds"], at["total_seconds"]
            self.prequential = self._new_prequential()
            if self.prequential:
                self.prequential.load_state(at["prequential"])
        done = sum(len(task.batches) for task in self.stream.tasks[: self.task]) + self.batch
        self._event("start", total=self.stream.batch_count, done=done, tasks=len(self.stream.tasks))

    def learn(self, checkpoint_every: Every, should_stop: Callable[[], bool]) -> None:
        due = Due(checkpoint_every)
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
                if due.after_batch():
                    self._checkpoint()
            self._end_task()

    def _new_prequential(self) -> Prequential | None:
        return Prequential(self.learner, self.config.prequential) if self.config.prequential else None

    def finish(self) -> dict[str, Any]:
        save_memory(self.learner, self.stream.dataset.class_names, self.out / "memory")
        save_stream_sheet(self.learner, self.stream, self.out / "memory")
        config, learner = self.config, self.learner
        seconds = learner.seconds | {"evaluate": self.evaluate_seconds, "total": self._elapsed()}
        result = {
            "method": config.method,
            "dataset": config.dataset,
            "stream": config.stream,
            "tasks": len(self.stream.tasks),
            "classes": self.stream.class_count,
            "images_per_class": config.images_per_class,
            "batch": config.batch,
            "classes_per_task": config.classes_per_task,
            "epochs": config.epochs,
            "skip_damaged": config.skip_damaged,
            "class_order": config.class_order,
            "instance_order": config.instance_order,
            "image_size": learner.image_shape[-1] if learner.image_shape else config.image_size,
            "memory_size": learner.memory_size,
            "memory_budget": learner.memory_bytes,
            "memory_bytes": learner.footprint()["images"],
            "memory_images": learner.memory.size,
            "slots_per_class": learner.slots_per_class,
            "repeats": learner.repeats,
            "classes_total": learner.classes_total,
            "average": learner.average,
            "answer_from": learner.answer_from,
            "boundary_gap": learner.boundary_gap,
            "codec": learner.codec,
            "keep_originals": learner.keep_originals,
            "settings": config.settings,
            "seed": config.seed,
            **metrics.summary(self.matrices[learner.answer_from]),
            "readings": {reading: metrics.summary(matrix) for reading, matrix in self.matrices.items()},
            "prequential": self.prequential.summary() if self.prequential else None,
            "seconds": {name: round(value, 3) for name, value in seconds.items()},
            "footprint": dict(learner.footprint()),
            "images_seen": self.images_seen,
            "summarize_rounds": learner.rounds,
        }
        write_json(self.out / "result.json", result)
        self._event("end", average_end_accuracy=result["average_end_accuracy"])
        return result

    def _end_task(self) -> None:
        start = time.perf_counter()
        seen = self.stream.tasks[: self.task + 1]
        for reading, matrix in self.matrices.items():
            row: list[float | None] = [_accuracy(self.learner, self.stream, task, reading) for task in seen]
            matrix.append(row + [None] * (len(self.stream.tasks) - len(seen)))
        self.evaluate_seconds += time.perf_counter() - start
        if Scenario.parse(self.stream.order).bounded:
            self.learner.boundary()
        self.task, self.batch = self.task + 1, 0
        save_snapshot(self.learner, self.stream.dataset.class_names, self.out / "memory", self.task)
        self._checkpoint()
        tested = {"prequential": self.prequential.summary()} if self.prequential else {}
        matrix = self.matrices[self.learner.answer_from]
        self._event(
            "task",
            task=self.task,
            accuracies=matrix[-1][: len(seen)],
            average=metrics.average_accuracy(matrix),
            averages={reading: metrics.average_accuracy(each) for reading, each in self.matrices.items()},
            **tested,
        )

    def _require_folder(self) -> None:
        if not (self.out / "config.yaml").is_file():
            raise FileNotFoundError(f"{self.out} was moved or removed while the run was in it")

    def _checkpoint(self) -> None:
        self._require_folder()
        at = {
            "stream": self.stream.digest(),
            "task": self.task,
            "batch": self.batch,
            "matrices": dict(self.matrices),
            "images_seen": self.images_seen,
            "evaluate_seconds": self.evaluate_seconds,
            "total_seconds": self._elapsed(),
            "prequential": self.prequential.state() if self.prequential else None,
        }
        self.learner.save(self.out / "checkpoint", extra=at)

    def _elapsed(self) -> float:
        return self.total_seconds + time.perf_counter() - self.started

    def _event(self, name: str, **facts: Any) -> None:
        event = {"event": name} | facts
        self._require_folder()
        with (self.out / "events.jsonl").open("a") as file:
            file.write(json.dumps({"time": round(time.time(), 3)} | event) + "\n")
        self.on_event(event)


def _make_learner(config: RunConfig, stream: TaskStream) -> Learner:
    scenario = Scenario.parse(stream.order)
    slots = config.slots_per_class
    if slots is None:
        bounded = scenario.bounded and config.memory_size is not None
        slots = max(1, (config.memory_size or 0) // stream.class_count) if bounded else "auto"
    classes_total = config.classes_total
    if classes_total is None and scenario.published:
        classes_total = stream.class_count
    return Learner(
        config.method,
        classes_total=classes_total,
        memory_size=config.memory_size,
        memory_bytes=config.memory_bytes,
        slots_per_class=slots,
        seed=config.seed,
        repeats=config.repeats,
        average=config.average,
        answer_from=config.answer_from,
        boundary_gap=config.boundary_gap,
        codec=config.codec,
        keep_originals=config.keep_originals,
        **learner_settings(config),  # type: ignore[arg-type]
    )


def readings_of(config: RunConfig) -> list[Reading]:
    """What a run is scored by: the net, and its moving average where one is kept."""
    return ["net"] if config.average is None else ["net", "averaged"]


def _accuracy(learner: Learner, stream: TaskStream, task: Task, reading: Reading) -> float:
    x, y = stream.test(task)
    return 100 * float(np.mean(np.array(learner.predict(x, answer_from=reading)) == y))


def _end_torn_line(path: Path) -> None:
    """What is appended to a file that a crash cut off in mid-line must begin a line of its own."""
    if path.is_file() and path.stat().st_size and not path.read_bytes().endswith(b"\n"):
        with path.open("a") as file:
            file.write("\n")


def _environment() -> dict[str, Any]:
    command = [Path(sys.argv[0]).name, *sys.argv[1:]]
    return environment() | {"python": platform.python_version(), "numpy": np.__version__, "command": command}
