"""What happened in a run, read back from its events.jsonl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def read_events(run: Path) -> list[Event]:
    """Of a run folder, in order; a line that a crash cut off is passed over."""
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


def losses(run: Path) -> list[tuple[int, float, float]]:
    """Batch, gradient matching and relationship loss of every round; of one that was run twice, the last."""
    rounds = {event["batch"]: event for event in read_events(run) if event["event"] == "round"}
    return [(batch, event["gradient_matching"], event["relationship"]) for batch, event in sorted(rounds.items())]
