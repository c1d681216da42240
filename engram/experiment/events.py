"""Read the events of a run from its events.jsonl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def read_events(run: Path) -> list[Event]:
    """Return the events in a run folder, in order. A line that a crash cut off is skipped."""
    file = run / "events.jsonl"
    events = []
    for line in file.read_text().splitlines() if file.is_file() else []:
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(event, dict) and "event" in event:
            events.append(event)
    return events


def loss_terms(event: Event) -> dict[str, float]:
    """Return the terms of the summarizing loss in a round's event, by name."""
    return {name: value for name, value in event.items() if name not in ("event", "time", "batch")}


def summarizing_losses(run: Path) -> list[tuple[int, dict[str, float]]]:
    """Return the batch number and the loss terms of every summarizing round, in order.

    A resumed run may have done a round twice; the terms of the last time are returned.
    """
    rounds = {event["batch"]: loss_terms(event) for event in read_events(run) if event["event"] == "round"}
    return sorted(rounds.items())
