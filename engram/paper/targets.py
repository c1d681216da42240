"""The paper's figures by table, row and column."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

Target = tuple[float, float | None]
"""Mean of ten runs, and its ± if the paper gives one."""


@cache
def published() -> dict[str, Any]:
    """Return the content of `targets.json`: all figures of the paper, by table."""
    content: dict[str, Any] = json.loads((files("engram.paper") / "targets.json").read_text(encoding="utf-8"))
    return content


@dataclass(frozen=True)
class Targets:
    """The paper's figures of one table.

    A row has a list of figures over the memory sizes, or a single figure. Some tables have these for each data set or
    for each measure.

    Args:
        table: name of the table in `targets.json`.
    """

    table: str

    def of(self, row: str, dataset: str, slots: int, measure: str) -> Target | None:
        """Return the paper's figure, or None if the paper does not give one.

        Args:
            row: label of the row.
            dataset: name of the data set.
            slots: images per class that the memory holds.
            measure: the paper's short name of the measure, such as "acc".
        """
        content = published().get(self.table, {})
        found = content.get("rows", {}).get(row)
        sizes = content.get("K", [])
        if isinstance(found, dict):
            key = dataset.replace("-", "_")
            sizes = content.get(key, {}).get("K", sizes)
            found = found.get(key, found.get(measure))
        if found is None or (measure != "acc" and not isinstance(content["rows"][row], dict)):
            return None
        wanted = slots * (200 if dataset == "tiny-imagenet" else 100)
        if len(found) != len(sizes):
            return _target(found)
        return _target(found[sizes.index(wanted)]) if wanted in sizes else None


def _target(value: Any) -> Target | None:
    if value is None:
        return None
    return (float(value[0]), float(value[1])) if isinstance(value, list) else (float(value), None)
