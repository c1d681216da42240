"""`engram memory show|export|import`: what a memory holds, and how it travels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from engram.checkpoint import CheckpointError
from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.errors import InputError
from engram.experiment.run import class_names_of
from engram.keeper import Keeper
from engram.learner import Learner
from engram.memory import ExportedMemory, Store, exported_from
from engram.naming import class_name
from engram.restoring import UnfitNetError, saved_memory
from engram.summary_memory import SummaryMemory
from engram.validation import Label


def main(argv: list[str]) -> int:
    action = argv[0] if argv and not argv[0].startswith("-") else None
    if action is not None and action in ACTIONS:
        return ACTIONS[action](argv[1:])
    parser = Parser(
        prog="engram memory",
        usage="engram memory show RUN | export RUN FOLDER | import FOLDER OUT [options]",
        description="What the memory of a run (or of a saved learner) holds; to a folder of pictures, labels and exact "
        "values; and from such a folder to a new learner.",
    )
    parser.add_argument("action", choices=list(ACTIONS), help="what to do; each has its own --help")
    parser.parse_args(argv)
    raise AssertionError("every action is handled above")


def show(argv: list[str]) -> int:
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
            keeper: Keeper = kind.load(path)
        except UnfitNetError:
            return "by part they can be told in Python only, because a net of your own belongs to it"
        except CheckpointError:
            continue
        parts = ", ".join(f"{name} {size:,}" for name, size in keeper.footprint().items() if size)
        limit = keeper.memory_bytes
        return parts if limit is None else f"{parts}; the images may take {limit:,}"
    raise AssertionError("what has a memory is one of these")


def export(argv: list[str]) -> int:
    parser = Parser(
        prog="engram memory export",
        usage="engram memory export RUN FOLDER",
        description="Write the memory of a run (or of a saved learner) to a new folder: one PNG an image, labels.csv, "
        "and memory.safetensors with the values as they are.",
    )
    parser.add_argument("run", type=Path, help="a run folder, or a folder written by Learner.save")
    parser.add_argument("folder", type=Path, help="the folder to write, which may not exist yet")
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
    parser = Parser(
        prog="engram memory import",
        usage="engram memory import FOLDER OUT [options]",
        description="Start a learner from an exported memory: it holds those images, rehearses them, and is saved "
        "where Learner.load finds it.",
    )
    parser.add_argument("folder", type=Path, help="a folder written by engram memory export")
    parser.add_argument("out", type=Path, help="where to save the learner")
    parser.add_argument("--method", type=str, default="scr+ssd", help="one of engram methods")
    parser.add_argument("--steps", type=int, default=500, help="training steps on the memory; 0 for none")
    parser.add_argument("--batch", type=int, default=10, help="images of a step, beside those the method replays")
    parser.add_argument("--seed", type=int, default=0, help="of every draw of the learner")
    parser.add_argument("--codec", type=str, default="float32", help="how the learner stores images")
    parser.add_argument("--memory_size", type=int | None, default=None, help="images it holds (default: these)")
    parser.add_argument("--memory_bytes", type=int | str | None, default=None, help="bytes of them, such as 300KB")
    parser.add_argument("--width", type=int, default=20, help="channels of the net's first layer")
    options = parser.parse_args(argv)
    if options.out.exists() and any(options.out.iterdir()):
        raise InputError(f"{options.out} is not empty: choose another folder")
    exported = ExportedMemory.read(options.folder)
    size = len(exported) if options.memory_size is None and options.memory_bytes is None else options.memory_size
    learner = Learner(
        options.method,
        memory_size=size,
        memory_bytes=options.memory_bytes,
        seed=options.seed,
        codec=options.codec,
        net={"width": options.width},
    )
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
    """By class; `names` are those of numbered classes."""
    labels = memory.labels[: memory.size]
    counts = {
        "images": Counter(labels.tolist()),
        "claimed": Counter(labels[memory.claimed[: memory.size]].tolist()),
        "summaries": Counter(labels[memory.summary[: memory.size]].tolist()),
    }
    table = Table("class", *counts)
    for index, label in enumerate(classes):
        table.add_row(class_name(label, names), *(str(count[index]) for count in counts.values()))
    table.add_row("all", *(str(count.total()) for count in counts.values()))
    filled = f"{memory.size} of {memory.capacity} slots filled"
    if memory.budget is not None:
        filled = f"{memory.size} images in {memory.used:,} of {memory.budget:,} bytes"
    table.caption = f"{filled}, {memory.seen} images seen, codec {memory.codec.name}"
    return table
