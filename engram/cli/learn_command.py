"""`engram learn FOLDER --into LEARNER`: let a learner learn from a folder of photos, a new one or one saved before."""

from __future__ import annotations

from pathlib import Path

from engram.base.settings import Count, schema_of
from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.cli.progress import RunProgress
from engram.cli.stopping import stop_on_signal
from engram.cli.tables import readable_bytes
from engram.experiment.learning import learn_into, open_learner
from engram.experiment.run import Interrupted
from engram.experiment.save_interval import SaveInterval
from engram.methods import DEFAULT_METHOD
from engram.options import ComputeOptions, ImageOptions, LearnerOptions, MemoryOptions, TrainingOptions
from engram.persistence.teaching import teaching_lock
from engram.streams import BATCH, ImageReading, open_photos, to_batches

GROUPS = {
    "images": ImageOptions,
    "memory": MemoryOptions,
    "training": TrainingOptions,
    "computing": ComputeOptions,
}
"""The options of a learner, by their headings in the help."""


def main(argv: list[str]) -> int:
    """Run `engram learn` and return the exit code."""
    options = build_parser().parse_args(argv)
    chosen = {name: value for name, value in vars(options).items() if name in schema_of(LearnerOptions)}
    every = SaveInterval.parse(str(options.checkpoint_every))
    open_photos(options.folder)  # before anything is made: what is no folder of photos leaves nothing behind
    console = plain_console()
    with (
        teaching_lock(options.into),
        stop_on_signal() as should_stop,
        RunProgress([str(options.folder)], console) as progress,
    ):
        learner, stopped_at = open_learner(options.into, options.method, chosen)
        known = learner.reading
        reading = ImageReading(
            options.batch, known.size or options.size, known.fit, options.order_seed, options.skip_damaged
        )
        batches, before = to_batches(options.folder, reading), list(learner.labels)
        try:
            seen = learn_into(
                options.into, learner, batches, stopped_at, every, lambda event: progress(0, event), should_stop
            )
        except Interrupted as stopped:
            console.print(f"{stopped}. To continue, use the same command.", soft_wrap=True)
            return should_stop.exit_code
    new = [str(label) for label in learner.labels if label not in before]
    console.print(
        f"Learned from {seen:,} images. Classes known: {len(learner.labels)}"
        f"{', new: ' + ', '.join(new) if new else ''}. The memory holds {learner.memory.size} images in "
        f"{readable_bytes(learner.footprint()['images'])}, {int(learner.memory.summary.sum())} of them summaries.",
        soft_wrap=True,
    )
    console.print(f"Saved in {options.into}; try `engram predict {options.into} IMAGE`", soft_wrap=True)
    return 0


def build_parser() -> Parser:
    """Return the parser of `engram learn`."""
    parser = Parser(
        prog="engram learn",
        usage="engram learn FOLDER --into LEARNER [options]",
        description="Learn from every image in FOLDER once. It has one folder of images per class, whose names are the "
        "labels. LEARNER is created, or continued if it is there; then it keeps the options it was created with. A "
        "command that was stopped goes on where it was.",
    )
    parser.add_argument("folder", type=Path, help="folder with one folder of images per class")
    parser.add_argument("--into", type=Path, required=True, help="folder of the saved learner")
    parser.add_argument(
        "--method", type=str | None, default=None, help=f"method of a new learner (default: {DEFAULT_METHOD})"
    )
    parser.add_argument("--size", type=Count, default=32, help="pixels per side of the images, for a new learner")
    parser.add_argument("--batch", type=Count, default=BATCH, help="number of images in a batch")
    parser.add_argument("--order_seed", type=int, default=0, help="seed of the order in which images come")
    parser.add_argument("--skip_damaged", action="store_true", help="leave out images that cannot be read")
    parser.add_argument(
        "--checkpoint_every",
        type=str,
        default="60s",
        help="time between checkpoints: seconds (60, 0.5s) or batches (500b)",
    )
    for title, declaration in GROUPS.items():
        parser.add_options(title, declaration)
    return parser
