"""The way in: a batch is checked, written to the journal and synced, and only then acknowledged.

The journal is also the queue. What waits is the place of each batch on disk, so waiting batches take no memory, and
batches of a killed server are learned by the same code as new ones.
"""

from __future__ import annotations

import logging
import re
import secrets
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from engram.base.errors import InputError
from engram.base.validation import Label, check_images, check_labels
from engram.serve.batches import LabeledBatch
from engram.serve.ids import SeenIds, digest
from engram.serve.journal import Entry, Journal
from engram.serve.limits import ServeLimits
from engram.serve.refusal import Refusal

LONGEST_NAME = 200
"""Characters of a label that is a string."""
LARGEST_NUMBER = 1 << 62
"""Bound of a label that is an integer."""
FIRST_PACE = 0.5
"""Seconds that a batch is taken to need before one was learned."""

_ID = re.compile(r"[!-~]{1,100}")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Receipt:
    """The answer to an accepted batch.

    Args:
        id: the id of the batch.
        position: number of the batch in the order of learning.
        duplicate: whether the batch had been accepted before; it is learned once.
        queued: number of batches that wait to be learned.
    """

    id: str
    position: int
    duplicate: bool
    queued: int


class Intake:
    """Accepts batches in any thread and hands them to the one that learns, in the order of the journal.

    Args:
        journal: where accepted batches are written.
        ids: the ids of batches that the checkpoint contains.
        image_shape: shape of the learner's images, if it has seen any.
        labels: the classes that the learner knows.
        limits: limits on requests.
    """

    def __init__(
        self,
        journal: Journal,
        ids: SeenIds,
        image_shape: tuple[int, int, int] | None,
        labels: Sequence[Label],
        limits: ServeLimits,
    ) -> None:
        self.journal, self.ids, self.limits = journal, ids, limits
        self.image_shape = image_shape
        self.labels = dict.fromkeys(labels)
        self.pace = FIRST_PACE
        """Seconds that a batch takes to be learned, on average."""
        self.closed: str | None = None
        """Why nothing is accepted any more."""
        self._waiting: deque[Entry] = deque()
        self._changed = threading.Condition()
        for entry, record in journal.recover():
            batch_id, content = split_record(record)
            batch = LabeledBatch.from_bytes(content)
            self._note(batch_id, batch, content, entry)

    @property
    def queued(self) -> int:
        """Number of batches that wait."""
        return len(self._waiting)

    def accept(self, batch_id: str, batch: LabeledBatch) -> Receipt:
        """Write a batch to the journal and return its receipt, or raise a `Refusal` and change nothing."""
        if not _ID.fullmatch(batch_id):
            raise Refusal(422, "the id must have 1 to 100 visible ASCII characters without blanks")
        content = batch.to_bytes()
        with self._changed:
            if (known := self._known(batch_id, content)) is not None:
                return known
            if self.closed is not None:
                raise Refusal(503, self.closed, 5.0)
            self._check(batch)
            if self.queued >= self.limits["most_queued"]:
                raise Refusal(
                    429, f"{self.queued} batches wait to be learned: send this one again later", self._wait_for_room()
                )
            try:
                entry = self.journal.append(batch_id.encode() + b"\0" + content)
            except (OSError, InputError) as error:
                _log.error("the journal cannot be written: %s", error)
                raise Refusal(503, "the batch could not be written to disk and was not accepted", 10.0) from error
            self._note(batch_id, batch, content, entry)
            self._changed.notify_all()
            return Receipt(batch_id, entry.position, False, self.queued)

    def take(self, timeout: float) -> Entry | None:
        """Return the next batch to learn and leave it in the queue; None if none comes in time, or after `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self.closed is not None, timeout)
            return self._waiting[0] if self._waiting and self.closed is None else None

    def done(self, seconds: float) -> None:
        """Remove the batch that was taken from the queue."""
        with self._changed:
            self._waiting.popleft()
            self.pace += 0.1 * (seconds - self.pace)

    def close(self, reason: str) -> None:
        """Accept nothing from now on. What waits stays in the journal."""
        with self._changed:
            self.closed = self.closed or reason
            self._changed.notify_all()

    def begin_file(self, position: int) -> dict[str, Tensor]:
        """Let the next batch begin a new file of the journal, and return the ids of batches up to a position."""
        with self._changed:
            self.journal.close_file()
            return self.ids.to_tree(position)

    def forget(self, position: int) -> None:
        """Remove the files of the journal that hold nothing after a position."""
        with self._changed:
            self.journal.forget(position)

    def _known(self, batch_id: str, content: bytes) -> Receipt | None:
        found = self.ids.find(batch_id)
        if found is None:
            return None
        if found[0] != digest(content):
            raise Refusal(409, "the id was used for another batch: give every batch an id of its own")
        return Receipt(batch_id, found[1], True, self.queued)

    def _check(self, batch: LabeledBatch) -> None:
        """Raise an `InputError` or a `Refusal` unless the learner can take the batch after those that wait."""
        check_images(batch.images, self.image_shape)
        for label in check_labels(batch.labels, len(batch.images), list(self.labels)[:1]):
            if isinstance(label, int):
                good = abs(label) < LARGEST_NUMBER
            else:
                good = 1 <= len(label) <= LONGEST_NAME and label.isprintable()
            if not good:
                raise Refusal(422, f"a label must have 1 to {LONGEST_NAME} visible characters, or be less than 2⁶²")
        classes, most = self.labels.keys() | set(batch.labels), self.limits["most_classes"]
        if len(classes) > max(most, len(self.labels)):
            raise Refusal(422, f"this would make {len(classes)} classes; at most {most} are allowed")

    def _note(self, batch_id: str, batch: LabeledBatch, content: bytes, entry: Entry) -> None:
        """Queue a batch that is in the journal, and expect those after it to be like it."""
        self.ids.add(batch_id, digest(content), entry.position)
        self.labels |= dict.fromkeys(batch.labels)
        channels, height, width = batch.images.shape[1:]
        self.image_shape = self.image_shape or (channels, height, width)
        self._waiting.append(entry)

    def _wait_for_room(self) -> float:
        """Return the seconds until a quarter of the queue is free, about."""
        return max(0.05, self.pace * self.limits["most_queued"] / 4)


def split_record(record: bytes) -> tuple[str, bytes]:
    """Return the id and the batch that a record of the journal holds."""
    batch_id, _, content = record.partition(b"\0")
    return batch_id.decode(), content


def new_id() -> str:
    """Return an id for a batch that came without one."""
    return secrets.token_hex(16)
