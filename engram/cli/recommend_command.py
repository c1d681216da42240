"""`engram recommend`: which method, pictures and number of steps suit a limit in bytes."""

from __future__ import annotations

import dataclasses
import json

from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.cli.tables import new_table, readable_bytes
from engram.recommending import Recommendation, recommend


def main(argv: list[str]) -> int:
    """Run `engram recommend` and return the exit code."""
    parser = Parser(
        prog="engram recommend",
        usage="engram recommend --bytes 300KB --classes 100 [OPTIONS]",
        description="Say which method, pictures and number of training steps suit a limit in bytes, based on what was "
        "measured in the nearest setting.",
    )
    parser.add_argument("--bytes", required=True, metavar="SIZE", help="limit of the encoded images, such as 300KB")
    parser.add_argument("--classes", type=int, required=True, help="classes that will have come in the end")
    parser.add_argument("--image-size", type=int, default=32, help="pixels per side of an image (default: 32)")
    parser.add_argument("--seconds", type=float, help="time a batch of ten images may take on one core, if it matters")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    found = recommend(options.bytes, classes=options.classes, image_size=options.image_size, seconds=options.seconds)
    if options.json:
        print(json.dumps(dataclasses.asdict(found), indent=1))
    else:
        _print(found, options.image_size)
    return 0


def _print(found: Recommendation, image_size: int) -> None:
    console, near = plain_console(), found.nearest
    per_class = found.pictures / found.classes
    room = f"{per_class:.0f} of each class" if per_class >= 1 else "not one of each class"
    facts = {
        "method": found.method,
        "pictures": f"{found.codec}: about {found.pictures:,} at quality {found.quality}, {room}",
        "steps": f"{found.repeats} on each batch",
    }
    for name, value in facts.items():
        console.print(f"{name:<9} {value}", soft_wrap=True)
    console.print()
    table = new_table(["steps"], ["accuracy measured", f"estimate at {image_size} px"])
    for choice in found.choices:
        mark = " (chosen)" if choice.repeats == found.repeats else ""
        table.add_row(f"{choice.repeats}{mark}", f"{choice.accuracy:.1f} %", f"{choice.milliseconds:.0f} ms a batch")
    console.print(table)
    console.print()
    console.print(
        f"Measured on {near.data}: {near.tasks} tasks, {near.classes} classes of {near.images_per_class} images of "
        f"{near.image_size} px, {readable_bytes(near.memory_bytes)} of pictures, {near.seeds} seed"
        f"{'s' if near.seeds > 1 else ''}, one core, {near.precision} ({', '.join(found.files)}). This is the nearest "
        "setting there is. Other data gives other accuracies, so measure on yours:",
    )
    console.print(
        f'\nengram run {found.method} FOLDER --memory-bytes {found.memory_bytes} --codec "{found.codec}" '
        f"--repeats {found.repeats}",
        soft_wrap=True,
    )
    arguments = ", ".join(f"{name}={value!r}" for name, value in found.arguments.items() if name != "method")
    console.print(f"Learner({found.method!r}, {arguments})", soft_wrap=True)
