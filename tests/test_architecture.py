"""Who may import whom, as docs/architecture.md draws the house."""

import ast
from pathlib import Path

import pytest

ENGRAM = Path(__file__).parents[1] / "engram"
ROOMS = {"streams", "nets", "schemes", "retrieval", "memory", "summarize", "classify"}
ABOVE = ("experiment", "report", "paper", "cli")
"""From the ground up: each may use those before it."""


def imported(file: Path) -> set[str]:
    """First names below `engram` of all that a file imports, also inside of functions."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        modules = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        modules += [name.name for name in node.names] if isinstance(node, ast.Import) else []
        found |= {module.split(".")[1] for module in modules if module.startswith("engram.")}
    return found


def imports_of(part: str) -> set[str]:
    return set().union(*map(imported, (ENGRAM / part).rglob("*.py"))) - {part}


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_a_room_knows_the_ground_floor_and_no_other_room(room: str) -> None:
    wires = {"learner", "methods", "summary_memory", "keeper", "restoring"}
    assert not imports_of(room) & (ROOMS | wires | set(ABOVE))


@pytest.mark.parametrize("level", range(len(ABOVE)))
def test_what_stands_on_top_is_used_from_above_only(level: int) -> None:
    assert not imports_of(ABOVE[level]) & set(ABOVE[level + 1 :])


def test_what_is_below_does_not_know_what_stands_on_it() -> None:
    for file in ENGRAM.glob("*.py"):
        if file.name != "__main__.py":
            assert not imported(file) & set(ABOVE), file.name
