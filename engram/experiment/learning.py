"""Let a saved learner learn from a source, with checkpoints: created or continued, and resumed where it was stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from engram.base.errors import InputError
from engram.experiment.events import Event
from engram.experiment.run import Interrupted
from engram.experiment.save_interval import SaveInterval, SaveTimer
from engram.learner import Learner
from engram.persistence.checkpoint import holds_checkpoint
from engram.persistence.teaching import TEACHING, saved_by_server
from engram.streams import Batches, DataError

WORKING = "learning"
"""Under this name a learner that was stopped says how far it came, and what its owner had saved with it."""


def open_learner(place: Path, method: str | None, options: dict[str, Any]) -> tuple[Learner, dict[str, Any]]:
    """Return the learner saved at a place, or a new one, and where it was stopped.

    Args:
        place: folder of the learner.
        method: method of a new learner; one that is continued must have the same, unless this is None.
        options: arguments of a new learner; one that is continued must have the same, but its device and threads.
    """
    if not holds_checkpoint(place):
        if place.exists() and any(entry.name != TEACHING for entry in place.iterdir()):
            raise InputError(f"{place} holds something that is no saved learner: choose another folder")
        return Learner(method, **options), {}
    learner, extra = Learner.load_with_extra(place, options.get("device"))
    _require_same(place, learner, method, options)
    if options.get("threads") is not None:
        learner.options["threads"] = options["threads"]
    if saved_by_server(extra):
        raise InputError(
            f"{place} is taught by engram serve, whose journal would no longer fit: send the images to the server, or "
            "teach a copy of it (GET /download)"
        )
    working = extra.get(WORKING) if isinstance(extra, dict) else None
    return learner, working if isinstance(working, dict) else {"before": extra}


def learn_into(
    place: Path,
    learner: Learner,
    batches: Batches,
    stopped_at: dict[str, Any],
    every: SaveInterval,
    on_event: Callable[[Event], None] = lambda event: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> int:
    """Let a learner learn from batches, save it at a place now and then and at the end, and return the images learned.

    A stop is an `Interrupted`; everything is saved then. What was learned before a stop is not learned again.

    Args:
        place: folder of the learner.
        learner: the learner, as `open_learner` returned it.
        batches: what to learn from.
        stopped_at: where it was stopped, as `open_learner` returned it.
        every: time between checkpoints.
        on_event: called when learning starts and after each batch.
        should_stop: returns whether to stop.
    """
    before = stopped_at.get("before")
    done = int(stopped_at["done"]) if batches.digest and stopped_at.get("digest") == batches.digest else 0
    seen, timer = 0, SaveTimer(every)
    on_event({"event": "start", "total": batches.count or 0, "done": done})
    for x, y in batches.start_at(done):
        if len(y):
            learner.observe(x, y)
        seen, done = seen + len(y), done + 1
        on_event({"event": "batch"})
        stopping = should_stop()
        if timer.after_batch() or stopping:
            learner.save(place, {WORKING: {"digest": batches.digest, "done": done, "before": before}})
        if stopping:
            raise Interrupted(f"stopped after {done} of {batches.count} batches")
    if learner.image_shape is None:
        raise DataError("there was no image to learn from: none of the files could be read")
    learner.tell_if_not_summarized()
    learner.save(place, before)
    return seen


def _require_same(place: Path, learner: Learner, method: str | None, options: dict[str, Any]) -> None:
    """Refuse options that a saved learner was not made with."""
    if method is not None and method != learner.method:
        raise InputError(f"{place} is a learner of {learner.method}, not of {method}: leave out --method")
    own = dict(learner.options)
    for name, value in options.items():
        if name not in ("device", "threads") and own.get(name) != value:
            raise InputError(
                f"{place} was made with {name}={own.get(name)}, not {value}: leave it out, or teach a new learner in "
                "another folder"
            )
