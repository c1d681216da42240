"""`engram memory show RUN`: what the memory of a run holds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from engram.cli.parser import Parser
from engram.learner import Learner


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="engram memory",
        usage="engram memory show RUN",
        description="Show what the memory of a run (or of a saved learner) holds, class by class.",
    )
    parser.add_argument("action", choices=["show"], help="what to do")
    parser.add_argument("run", type=Path, help="a run folder, or a folder written by Learner.save")
    options = parser.parse_args(argv)
    inside = options.run / "checkpoint"
    learner = Learner.load(inside if inside.is_dir() else options.run)
    console = Console()
    console.print(memory_table(learner))
    footprint = ", ".join(f"{name} {size:,}" for name, size in learner.footprint().items() if size)
    console.print(f"bytes: {footprint}", highlight=False)
    sheet = options.run / "memory" / "contact-sheet.png"
    if sheet.is_file():
        console.print(f"picture: {sheet}", highlight=False)
    return 0


def memory_table(learner: Learner) -> Table:
    memory = learner.memory
    labels = memory.labels[: memory.size]
    counts = {
        "images": Counter(labels.tolist()),
        "claimed": Counter(labels[memory.claimed[: memory.size]].tolist()),
        "summaries": Counter(labels[memory.summary[: memory.size]].tolist()),
    }
    table = Table("class", *counts)
    for index, label in enumerate(learner.labels):
        table.add_row(str(label), *(str(count[index]) for count in counts.values()))
    table.add_row("all", *(str(count.total()) for count in counts.values()))
    filled = f"{memory.size} of {memory.capacity} slots filled"
    if memory.budget is not None:
        filled = f"{memory.size} images in {memory.used:,} of {memory.budget:,} bytes"
    table.caption = f"{filled}, {memory.seen} images seen, codec {memory.codec.name}"
    return table
