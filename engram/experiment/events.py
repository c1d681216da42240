"""Read the events of a run from its events.jsonl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engram.persistence.files import read_plain
from engram.persistence.parsing import parse_json

Event = dict[str, Any]

LARGEST = 1 << 28
"""Most bytes of an events.jsonl that is read."""
LONGEST_LINE = 1 << 20
"""Most bytes of a line; longer ones are none of ours."""


def read_events(run: Path) -> list[Event]:
    """Return the events in a run folder, in order. A line that a crash cut off, or that is no event, is skipped."""
    file = run / "events.jsonl"
    events = []
    for line in read_plain(file, LARGEST).split(b"\n") if file.is_file() else []:
        try:
            event = parse_json(line) if len(line) <= LONGEST_LINE else None
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            events.append(event)
    return events


def loss_terms(event: Event) -> dict[str, float]:
    """Return the terms of the summarizing loss in a round's event, by name."""
    terms = {name: value for name, value in event.items() if name not in ("event", "time", "batch")}
    return {name: float(value) for name, value in terms.items() if _is_number(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def summarizing_losses(run: Path) -> list[tuple[int, dict[str, float]]]:
    """Return the batch number and the loss terms of every summarizing round, in order.

    A resumed run may have done a round twice; the terms of the last time are returned.
    """
    rounds = [event for event in read_events(run) if event["event"] == "round" and _is_number(event.get("batch"))]
    return sorted({int(event["batch"]): loss_terms(event) for event in rounds}.items())
