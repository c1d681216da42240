"""`engram evaluate LEARNER FOLDER`: test a saved learner on a folder of photos."""

from __future__ import annotations

import json
from pathlib import Path

from engram.cli.answering import open_to_answer
from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.cli.tables import new_table
from engram.evaluation import score_images


def main(argv: list[str]) -> int:
    """Run `engram evaluate` and return the exit code."""
    parser = Parser(
        prog="engram evaluate",
        usage="engram evaluate LEARNER FOLDER [--json]",
        description="Let a saved learner answer on every image of FOLDER, which has one folder of images per class, "
        "and print how many answers are right. It learns nothing from them.",
    )
    parser.add_argument("learner", type=Path, help="folder of a saved learner, or of a run")
    parser.add_argument("folder", type=Path, help="folder with one folder of images per class")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    learner = open_to_answer(options.learner)
    scores = score_images(learner, options.folder)
    if options.json:
        by_class = {str(label): share for label, share in scores.by_class.items()}
        print(json.dumps({"accuracy": scores.accuracy, "balanced": scores.balanced, "by_class": by_class}))
        return 0
    table = new_table(["class", "most often taken for"], ["images", "right %"])
    for label in sorted(scores.images, key=str):
        wrong = {answer: count for (truth, answer), count in scores.confused.items() if truth == label}
        taken = max(wrong, key=lambda answer: wrong[answer], default="")
        table.add_row(str(label), str(taken), str(scores.images[label]), f"{scores.by_class[label]:.1f}")
    console = plain_console()
    console.print(table)
    if unknown := sorted(str(label) for label in scores.images if label not in learner.labels):
        console.print(f"never learned, so always wrong: {', '.join(unknown)}", soft_wrap=True)
    console.print(f"accuracy {scores.accuracy:.1f} % on {scores.images.total():,} images")
    return 0
