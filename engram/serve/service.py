"""One learner that is served: its folder, its journal, the thread that learns and the copy that answers."""

from __future__ import annotations

import io
import logging
import re
import secrets
import tempfile
import time
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from engram.base.errors import InputError
from engram.learner import Learner
from engram.memory.total import bounded_bytes
from engram.persistence.checkpoint import CheckpointError, holds_checkpoint
from engram.persistence.files import make_folder
from engram.persistence.lock import exclusive_lock
from engram.persistence.state import Tree
from engram.persistence.teaching import saved_by_server, teaching_lock
from engram.serve.batches import Array, LabeledBatch
from engram.serve.bodies import ImageFacts
from engram.serve.ids import SeenIds
from engram.serve.intake import Intake
from engram.serve.journal import Journal
from engram.serve.limits import ServeLimits
from engram.serve.metrics import Metrics
from engram.serve.predicting import answered
from engram.serve.published import Publication
from engram.serve.writer import Writer

JOURNAL = "journal"
"""Name of the journal's folder in the folder of a learner."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""What a learner may be called."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServiceSettings:
    """How a learner is served.

    Args:
        limits: limits on requests.
        side: pixels per side that pictures are scaled to before the learner has seen any image.
        threads: threads that the learner computes with; those of the last time, or of the learner, if None.
        checkpoint_every: seconds between two checkpoints.
        net: a module of the same shape as the learner's net, if that is one of its owner's own.
    """

    limits: ServeLimits
    side: int = 32
    threads: int | None = None
    checkpoint_every: float = 60.0
    net: nn.Module | None = None


class Service:
    """A learner that takes batches and answers at the same time.

    Args:
        folder: folder of the learner, as written by `Learner.save`; checkpoints go there too.
        settings: how it is served.
    """

    def __init__(self, folder: Path, settings: ServiceSettings) -> None:
        self.folder, self.settings = folder, settings
        self.metrics = Metrics()
        self._held = ExitStack()
        _require_learner(folder)
        make_folder(folder / JOURNAL)
        self._held.enter_context(exclusive_lock(folder / JOURNAL))
        try:
            self._held.enter_context(teaching_lock(folder))
            self._open()
        except BaseException:
            self._held.close()
            raise

    def _open(self) -> None:
        learner, extra = Learner.load_with_extra(self.folder, net=self.settings.net)
        served = saved_by_server(extra)
        self.before: Tree = extra["before"] if served else extra
        """What the owner of the learner had saved with it."""
        self.threads = self.settings.threads or learner.options["threads"] or torch.get_num_threads()
        learner.options["threads"] = self.threads
        self.identity = bytes.fromhex(served["journal"]) if served else secrets.token_bytes(16)
        position = served.get("position", 0)
        ids = SeenIds.from_tree(served["ids"]) if served else SeenIds()
        if not served:
            self._refuse_foreign_journal()
        journal = Journal(self.folder / JOURNAL, self.identity, position)
        self.intake = Intake(journal, ids, learner.image_shape, learner.labels, self.settings.limits)
        if self.intake.queued:
            _log.warning("%s: %d batches of the journal are learned first", self.folder.name, self.intake.queued)
        if not served:
            learner.save(self.folder, self._extra(position))
        self.publication = Publication(learner, position)
        self.writer = Writer(
            learner,
            self.intake,
            self.publication,
            self.metrics,
            self.folder,
            self._extra,
            position,
            self.threads,
            self.settings.checkpoint_every,
        )
        self.writer.start()

    def observe(self, batch_id: str, batch: LabeledBatch) -> dict[str, Any]:
        """Accept a batch: when this returns, it is on disk. Raises a `Refusal` or an `InputError` otherwise."""
        began = time.monotonic()
        receipt = self.intake.accept(batch_id, batch)
        self.metrics.count("batches_duplicate" if receipt.duplicate else "batches_accepted")
        self.metrics.time("observe", time.monotonic() - began)
        return asdict(receipt)

    def predict(self, images: Array, top: int, *, all_scores: bool) -> dict[str, Any]:
        """Return the likeliest labels of each image, from the newest copy of the learner.

        Args:
            images: (N,C,H,W).
            top: number of labels for each image.
            all_scores: return the scores of all classes too.
        """
        return answered(self.publication.current, images, top, self.metrics, all_scores=all_scores)

    def image_facts(self) -> ImageFacts:
        """Return what pictures and labels become."""
        shape = self.intake.image_shape or (3, self.settings.side, self.settings.side)
        first = next(iter(self.intake.labels), "")
        return ImageFacts(shape, self.publication.current.learner.options["fit"], isinstance(first, int))

    def status(self) -> dict[str, Any]:
        """Return what the learner is and how far it has come."""
        published = self.publication.current
        learner = published.learner
        memory = learner.memory if learner.image_shape else None
        return {
            "method": learner.method,
            "healthy": self.writer.failure is None,
            "failure": self.writer.failure,
            "labels": list(learner.labels),
            "image_shape": learner.image_shape,
            "accepted": self.intake.journal.last,
            "learned": self.writer.position,
            "published": published.position,
            "saved": self.writer.saved,
            "queued": self.intake.queued,
            "most_queued": self.settings.limits["most_queued"],
            "seconds_per_batch": round(self.intake.pace, 4),
            "journal_bytes": self.intake.journal.bytes,
            "threads": self.threads,
            "bytes": published.footprint,
            "budget": _budget(learner, published.footprint),
            "memory": {
                "images": memory.size if memory else 0,
                "bytes": memory.used if memory else 0,
                "most_images": learner.options["memory_size"],
                "most_bytes": learner.options["memory_bytes"],
                "codec": learner.options["codec"],
            },
        }

    def gauges(self) -> dict[str, float]:
        """Return the values of this moment for `/metrics`."""
        return {
            "queued": self.intake.queued,
            "accepted_position": self.intake.journal.last,
            "learned_position": self.writer.position,
            "published_position": self.publication.current.position,
            "saved_position": self.writer.saved,
            "journal_bytes": self.intake.journal.bytes,
            "checkpoint_seconds": self.metrics.checkpoint_seconds,
            "healthy": float(self.writer.failure is None),
        }

    def archive(self) -> bytes:
        """Return the newest copy of the learner as a zip file; unpacked, `Learner.load` reads it."""
        return self._zipped(self.publication.current.learner)

    def archive_beyond(self, position: int) -> tuple[int, bytes] | None:
        """Return the newest copy and its position, if it has learned more batches than this."""
        newest = self.publication.current
        return (newest.position, self._zipped(newest.learner)) if newest.position > position else None

    def _zipped(self, learner: Learner) -> bytes:
        with tempfile.TemporaryDirectory(prefix="engram-") as scratch:
            place = Path(scratch) / "learner"
            learner.save(place, self.before)
            written = io.BytesIO()
            with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as archive:
                for path in sorted(path for path in place.rglob("*") if path.is_file() and path.name != "lock"):
                    archive.write(path, Path("learner") / path.relative_to(place))
        return written.getvalue()

    def close(self) -> None:
        """Finish the current batch, write a checkpoint and release the folder."""
        self.writer.stop()
        self.publication.close()
        self._held.close()

    def _extra(self, position: int) -> Tree:
        """Return what is saved with a checkpoint. The journal goes on in a new file."""
        served = {"journal": self.identity.hex(), "position": position, "threads": self.threads}
        return {"served": served | {"ids": self.intake.begin_file(position)}, "before": self.before}

    def _refuse_foreign_journal(self) -> None:
        if any((self.folder / JOURNAL).glob("*.log")):
            raise InputError(
                f"{self.folder} holds a journal, but its checkpoint was not written by engram serve: something else "
                f"saved there. Restore the folder from a copy, or remove {JOURNAL}/ to go on without its batches"
            )


def _require_learner(folder: Path) -> None:
    if holds_checkpoint(folder / "checkpoint") and not holds_checkpoint(folder):
        raise InputError(
            f"{folder} is the folder of a run, which serving would change: save its learner elsewhere first, "
            "Learner.load(run).save(folder)"
        )
    if not holds_checkpoint(folder):
        raise CheckpointError(
            f"{folder} holds no learner: save one there, or give --new METHOD to begin with a new one"
        )


def _budget(learner: Learner, footprint: Mapping[str, int]) -> dict[str, Any]:
    """Return the option that limits a learner, how much of it is used, and the limit."""
    options, memory = learner.options, learner.memory if learner.image_shape else None
    if options["total_bytes"] is not None:
        name, used = "total_bytes", bounded_bytes(footprint, bool(options["count_nets"]))
    elif options["memory_bytes"] is not None:
        name, used = "memory_bytes", memory.used if memory else 0
    else:
        name, used = "memory_size", memory.size if memory else 0
    return {"option": name, "used": used, "limit": options[name]}  # type: ignore[literal-required]
