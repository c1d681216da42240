"""The one thread that learns: batches in the order of the journal, copies for predictions, checkpoints."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

from engram.base.errors import InputError, NonFiniteLossError, NonFiniteStateError
from engram.learner import Learner
from engram.persistence.checkpoint import CheckpointError
from engram.persistence.state import Tree
from engram.serve.batches import LabeledBatch
from engram.serve.intake import Intake, split_record
from engram.serve.metrics import Metrics
from engram.serve.published import Publication

LOOK_EVERY = 0.25
"""Seconds after which a thread without batches looks whether a checkpoint is due."""
MOST_JOURNAL = 64 << 20
"""Bytes of new batches in the journal after which a checkpoint is written."""

_log = logging.getLogger(__name__)


class Writer(threading.Thread):
    """Learns what the intake hands over, until it is told to stop.

    Args:
        learner: the learner; nobody else trains it.
        intake: where batches come from.
        publication: where copies for predictions go.
        metrics: what is counted.
        folder: where checkpoints go.
        describe: returns what is saved with a checkpoint at a position.
        position: number of batches that the learner has learned.
        threads: number of threads that it computes with; the last bits depend on it.
        checkpoint_every: seconds between two checkpoints.
    """

    def __init__(
        self,
        learner: Learner,
        intake: Intake,
        publication: Publication,
        metrics: Metrics,
        folder: Path,
        describe: Callable[[int], Tree],
        position: int,
        threads: int,
        checkpoint_every: float,
    ) -> None:
        super().__init__(name="engram-learn", daemon=True)
        self.learner, self.intake, self.publication, self.metrics = learner, intake, publication, metrics
        self.folder, self.describe, self.threads, self.checkpoint_every = folder, describe, threads, checkpoint_every
        self.position = position
        """Number of batches learned or refused by the learner."""
        self.saved = position
        """The position of the newest checkpoint."""
        self.failure: str | None = None
        """Why learning has stopped, if it had to."""
        self._saved_at = time.monotonic()
        self._saved_bytes = intake.journal.bytes
        self._stopping = threading.Event()

    def run(self) -> None:
        torch.set_num_threads(self.threads)
        try:
            while not self._stopping.is_set():
                self._learn_next()
                self.publication.offer(self.learner, self.position, at_once=not self.intake.queued)
                if self._checkpoint_due():
                    self.checkpoint()
        except Exception:
            _log.exception("learning has stopped; batches that were accepted are in the journal")
            self.failure = "learning has stopped because of an error that the server's log explains: restart it"
            self.intake.close(self.failure)

    def stop(self) -> None:
        """Finish the batch that is being learned, write a checkpoint and end. What waits stays in the journal."""
        self.intake.close("the server is shutting down: send this again when it is back")
        self._stopping.set()
        self.join()
        if self.failure is None and self.position > self.saved:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Save the learner. Files of the journal that the checkpoint before does not need either are removed."""
        began = time.monotonic()
        older = self.saved
        try:
            self.learner.save(self.folder, self.describe(self.position))
        except (CheckpointError, InputError, NonFiniteStateError) as error:
            self.metrics.count("checkpoint_failures")
            _log.error("no checkpoint was written (%s); the journal keeps everything", error)
        else:
            self.saved = self.position
            self.metrics.count("checkpoints")
            try:
                self.intake.forget(older)
            except OSError as error:
                _log.warning("files of the journal that are not needed any more could not be removed: %s", error)
        self._saved_at, self._saved_bytes = time.monotonic(), self.intake.journal.bytes
        self.metrics.checkpoint_seconds = self._saved_at - began

    def _learn_next(self) -> None:
        entry = self.intake.take(LOOK_EVERY)
        if entry is None:
            return
        _, content = split_record(self.intake.journal.read(entry))
        batch = LabeledBatch.from_bytes(content)
        began = time.monotonic()
        try:
            self.learner.observe(batch.images, batch.labels)
        except (InputError, NonFiniteLossError) as error:
            # It leaves no trace in the learner, and will be refused again if the journal is replayed.
            self.metrics.count("batches_failed")
            _log.warning("batch %d was not learned: %s", entry.position, error)
        else:
            self.metrics.count("batches_learned")
            self.metrics.count("images_learned", len(batch.images))
        self.position = entry.position
        self.intake.done(time.monotonic() - began)

    def _checkpoint_due(self) -> bool:
        if self.position == self.saved:
            return False
        grown = self.intake.journal.bytes - self._saved_bytes
        return time.monotonic() - self._saved_at >= self.checkpoint_every or grown >= MOST_JOURNAL
