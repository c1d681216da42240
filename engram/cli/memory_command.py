"""`engram memory show|export|import`: show a memory, export it, or import it into a new learner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from engram.base.errors import InputError, UnknownPartError
from engram.base.naming import class_name
from engram.base.settings import Count, Natural, schema_of
from engram.base.validation import Label
from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.cli.tables import new_table
from engram.experiment.folder import class_names_of
from engram.learner import Learner
from engram.memory import ExportedMemory, Store, exported_from
from engram.options import LIMITS, CommonOptions, ComputeOptions, MemoryOptions, describe_limit
from engram.persistence.checkpoint import CheckpointError
from engram.persistence.restore import UnfitNetError, restored, saved_memory
from engram.stream_consumer import StreamConsumer
from engram.summary_memory import SummaryMemory


def main(argv: list[str]) -> int:
    """Run `engram memory` and return the exit code."""
    action = argv[0] if argv and not argv[0].startswith("-") else None
    if action is not None and action in ACTIONS:
        return ACTIONS[action](argv[1:])
    parser = Parser(
        prog="engram memory",
        usage="engram memory show RUN | export RUN FOLDER | import FOLDER OUT [options]",
        description="show: print what the memory of a run (or of a saved learner) holds. export: write it to a folder "
        "of pictures, labels and exact values. import: start a new learner from such a folder.",
    )
    parser.add_argument("action", choices=list(ACTIONS), help="action to run; each has its own --help")
    parser.parse_args(argv)
    raise AssertionError("every action is handled above")


def show(argv: list[str]) -> int:
    """Run `engram memory show` and return the exit code."""
    parser = Parser(
        prog="engram memory show",
        usage="engram memory show RUN",
        description="Show what the memory of a run (or of a saved learner) holds, class by class.",
    )
    parser.add_argument("run", type=Path, help="a run folder, or a folder written by Learner.save")
    options = parser.parse_args(argv)
    memory, labels = saved_memory(options.run)
    console = plain_console()
    console.print(memory_table(memory, labels, class_names_of(options.run)))
    console.print(f"bytes: {_bytes_by_part(options.run)}")
    sheet = options.run / "memory" / "contact-sheet.png"
    if sheet.is_file():
        console.print(f"picture: {sheet}")
    return 0


def _bytes_by_part(path: Path) -> str:
    for kind in (Learner, SummaryMemory):
        try:
            consumer: StreamConsumer[Any] = restored(kind, path, continuing=False)[0]
        except (UnfitNetError, UnknownPartError):
            return "load it in Python to see them by part, because a net of your own belongs to it"
        except CheckpointError:
            continue
        parts = ", ".join(f"{name} {size:,}" for name, size in consumer.footprint().items() if size)
        return f"{parts}; the limit is {describe_limit(consumer.options)}"
    return "not known: the memory can be read, but not the rest of what was saved with it"


def export(argv: list[str]) -> int:
    """Run `engram memory export` and return the exit code."""
    parser = Parser(
        prog="engram memory export",
        usage="engram memory export RUN FOLDER",
        description="Write the memory of a run (or of a saved learner) to a new folder: one PNG per image, "
        "labels.csv, and memory.safetensors with the exact values.",
    )
    parser.add_argument("run", type=Path, help="a run folder, or a folder written by Learner.save")
    parser.add_argument("folder", type=Path, help="folder to write; it must not exist yet")
    options = parser.parse_args(argv)
    exported = exported_from(*saved_memory(options.run))
    exported.write(options.folder, class_names_of(options.run))
    plain_console().print(
        f"{len(exported)} images of {len(set(exported.labels))} classes, {int(exported.summary.sum())} of them "
        f"summaries: {options.folder}",
        soft_wrap=True,
    )
    return 0


def import_(argv: list[str]) -> int:
    """Run `engram memory import` and return the exit code."""
    parser = Parser(
        prog="engram memory import",
        usage="engram memory import FOLDER OUT [options]",
        description="Start a learner from an exported memory: put the images into its memory, train on them, and "
        "save it for Learner.load.",
    )
    parser.add_argument("folder", type=Path, help="a folder written by engram memory export")
    parser.add_argument("out", type=Path, help="folder to save the learner in")
    parser.add_argument("--method", type=str, default="scr+ssd", help="name of a method, as listed by engram methods")
    parser.add_argument("--steps", type=Natural, default=500, help="training steps on the memory; 0 for none")
    parser.add_argument(
        "--batch", type=Count, default=10, help="images per training step, besides those the method replays"
    )
    parser.add_argument("--width", type=int, default=20, help="channels of the net's first layer")
    parser.add_options("memory", MemoryOptions)
    parser.add_options("computing", ComputeOptions)
    options = parser.parse_args(argv)
    if options.out.exists() and any(options.out.iterdir()):
        raise InputError(f"{options.out} is not empty: choose another folder")
    exported = ExportedMemory.read(options.folder)
    chosen: Any = {name: value for name, value in vars(options).items() if name in schema_of(CommonOptions)}
    if not chosen.keys() & set(LIMITS):
        chosen["memory_size"] = len(exported)
    learner = Learner(options.method, net={"width": options.width}, **chosen)
    learner.adopt(exported)
    learner.rehearse(options.steps, options.batch)
    learner.save(options.out)
    plain_console().print(
        f"{options.method} with {len(exported)} images of {len(learner.labels)} classes, after {options.steps} steps "
        f"on them: Learner.load({str(options.out)!r})",
        soft_wrap=True,
    )
    return 0


ACTIONS = {"show": show, "export": export, "import": import_}


def memory_table(memory: Store, classes: Sequence[Label], names: Sequence[str] = ()) -> Table:
    """Return a table of a memory's images, claimed slots and summaries by class.

    Args:
        memory: the memory to show.
        classes: labels of the classes, by index.
        names: names of the classes, if their labels are numbers.
    """
    labels = memory.labels[: memory.size]
    counts = {
        "images": Counter(labels.tolist()),
        "claimed": Counter(labels[memory.claimed[: memory.size]].tolist()),
        "summaries": Counter(labels[memory.summary[: memory.size]].tolist()),
    }
    table = new_table(("class",), tuple(counts))
    for index, label in enumerate(classes):
        table.add_row(class_name(label, names), *(str(count[index]) for count in counts.values()))
    table.add_row("all", *(str(count.total()) for count in counts.values()))
    table.caption = f"{memory.limit.describe(memory)}, {memory.seen} images seen, codec {memory.codec.name}"
    return table
