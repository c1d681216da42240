"""What predictions are answered from: a copy of the learner that nobody trains.

The thread that learns makes the copy between two batches and hands it over. Another thread prepares it (class means,
for one) and puts it in place of the copy before. So a prediction waits for other predictions, and never for a batch.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from contextlib import suppress
from functools import cached_property

import torch

from engram.base.errors import NotReadyError
from engram.learner import Learner

LONGEST_SHARE = 0.02
"""Share of its time that learning may spend on copies while batches wait."""
LEAST_PAUSE = 0.25
"""Seconds between two copies, at least, while batches wait."""

_log = logging.getLogger(__name__)


class Published:
    """A copy of the learner.

    Args:
        learner: the copy; it is never trained.
        position: number of batches that it has learned since it is served.
    """

    def __init__(self, learner: Learner, position: int) -> None:
        self.learner, self.position = learner, position

    @cached_property
    def footprint(self) -> dict[str, int]:
        """Bytes held, by what holds them."""
        return dict(self.learner.footprint())

    def prepare(self) -> None:
        """Compute what the first prediction would wait for."""
        shape = self.learner.image_shape
        if shape is not None:
            with suppress(NotReadyError):
                self.learner.scores(torch.zeros(1, *shape))


class Publication:
    """The newest copy, replaced from time to time.

    Args:
        learner: the learner that is trained.
        position: number of batches that it has learned.
    """

    def __init__(self, learner: Learner, position: int) -> None:
        self.current = Published(copy.deepcopy(learner), position)
        self.current.prepare()
        self._next: Published | None = None
        self._changed = threading.Condition()
        self._stopped = False
        self._taken = position
        self._due = 0.0
        self._thread = threading.Thread(target=self._run, name="engram-publish", daemon=True)
        self._thread.start()

    def offer(self, learner: Learner, position: int, *, at_once: bool) -> None:
        """Copy the learner if it is time to; called by the thread that learns, between two batches.

        Args:
            learner: the learner that is trained.
            position: number of batches that it has learned.
            at_once: no batch waits, so copying holds up nothing.
        """
        began = time.monotonic()
        if position == self._taken or (began < self._due and not at_once):
            return
        made = Published(copy.deepcopy(learner), position)
        self._taken = position
        self._due = began + max(LEAST_PAUSE, (time.monotonic() - began) / LONGEST_SHARE)
        self.replace(made)

    def replace(self, made: Published) -> None:
        """Answer from this copy as soon as it is prepared."""
        with self._changed:
            self._next = made
            self._changed.notify_all()

    def wait_for(self, position: int, timeout: float) -> bool:
        """Wait until predictions come from a learner that has learned so many batches; return whether they do."""
        with self._changed:
            return self._changed.wait_for(lambda: self.current.position >= position or self._stopped, timeout)

    def close(self) -> None:
        """Replace the copy no more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next is not None or self._stopped)
                made, self._next = self._next, None
            if made is None:
                return
            try:
                made.prepare()
            except Exception:
                _log.exception("a copy of the learner cannot answer; the one before stays")
                continue
            with self._changed:
                self.current = made
                self._changed.notify_all()
