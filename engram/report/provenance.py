"""How the runs of a report were made: settings, commands, versions and commits."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from engram.experiment.config import config_text
from engram.experiment.result import read_json
from engram.report.html import html
from engram.report.tables import Run


def how_made(name: str, runs: Sequence[Run]) -> str:
    """Return a part of the page that opens on request, about runs that differ in their seed only."""
    made = "".join(f"<li>{_one(run)}</li>" for run in runs)
    settings = html(config_text(runs[0].result.config))
    summary = f"<summary>How {html(name)} was run</summary>"
    return f"<details class='made'>{summary}<ul>{made}</ul><pre>{settings}</pre></details>"


def _one(run: Run) -> str:
    """Return what is known of a run: a file of results has no folder, so neither command nor commit are known."""
    facts = _environment(run)
    known = "".join(f", {name} {html(facts[name])}" for name in ("commit", "torch") if facts.get(name))
    command = facts.get("command")
    written = f"<br><code>{html(shlex.join(map(str, command)))}</code>" if isinstance(command, list) else ""
    return f"seed {html(run.result.seed)}, engram {html(run.result.version)}{known}{written}"


def _environment(run: Run) -> dict[str, Any]:
    """Return what the run wrote about the machine and the program that made it, if it is there."""
    file = run.folder / "env.json" if run.folder else None
    found = read_json(file) if file is not None and file.is_file() else {}
    return found if isinstance(found, dict) else {}
