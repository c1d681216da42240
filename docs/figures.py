"""The pictures of README and docs: accuracy against bytes and seconds, from results/, and how SSD works.

python docs/figures.py
"""

from __future__ import annotations

import base64
import json
import re
from statistics import mean
from typing import Any

import matplotlib
from measured import ROOT, full_er_ema, headline_runs, read

from engram.experiment.result import RunResult
from engram.paper.targets import Targets

matplotlib.use("Agg")
from matplotlib import pyplot

PICTURES = ROOT / "docs" / "pictures"
RAW_IMAGE = 3 * 32 * 32
PAPER_ROWS = {"scr+ssd": "scr+ssd", "scr": "scr", "dvc": "dvc", "er": "er"}
OURS, THEIRS, PLAIN = "#b3402a", "#2a5db3", "#77767b"
STEPS = {"1 repeat": "er-ema, 1 step", "er-ema": "er-ema, 2 steps", "4 repeats": "er-ema, 4 steps"}

PLACES = {"aser": (6, 2), "scr": (-20, 3), "dvc": (6, -9), "er": (-14, 3), "gss": (7, -3)}
"""Where the labels of points stand that would cover each other."""


HEADLINE = {"scr": PLAIN, "scr+dynamic": "#2f8a4c", "scr+ssd": THEIRS}


def main() -> None:
    pyplot.rcParams.update({"font.size": 12, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 5), layout="constrained")
    draw_bytes(left)
    draw_seconds(right)
    save(figure, "frontier.png")
    figure, sides = pyplot.subplots(1, 2, figsize=(11, 4.4), layout="constrained", sharey=True)
    for axes, reading in zip(sides, ("net", "averaged"), strict=True):
        draw_headline(axes, reading)
    sides[0].legend(frameon=False)
    save(figure, "headline.png")
    save(round_of_summarizing(), "round.png")
    (PICTURES / "summary-steps.png").write_bytes(picture_of_notebook("ssd-step-by-step"))


def picture_of_notebook(name: str) -> bytes:
    """Return the first picture that a notebook shows, as PNG."""
    cells = json.loads((ROOT / "docs" / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    shown = [output["data"] for cell in cells for output in cell.get("outputs", ()) if "data" in output]
    return base64.b64decode(next(data["image/png"] for data in shown if "image/png" in data))


def round_of_summarizing() -> Any:
    """Return a diagram: what a step on the pixels of a summary compares."""
    figure, axes = pyplot.subplots(figsize=(9, 3.4), layout="constrained")
    axes.set(xlim=(0, 90), ylim=(0, 34))
    axes.axis("off")
    boxes = (
        (2, 22, 20, "queue\n64 images of the class", PLAIN),
        (2, 8, 20, "summaries\nof the class", OURS),
        (31, 22, 20, "θ: gradients\nand mean feature", THEIRS),
        (31, 8, 20, "θ: gradients\nand mean feature", THEIRS),
        (62, 15, 26, "two distances:\nof the gradients, and of the\nplaces among past classes", PLAIN),
    )
    for x, y, width, text, color in boxes:
        axes.add_patch(pyplot.Rectangle((x, y), width, 8, fill=False, edgecolor=color, linewidth=1.5))
        axes.text(x + width / 2, y + 4, text, ha="center", va="center", fontsize=10)
    arrows = [((22, 26), (31, 26)), ((22, 12), (31, 12)), ((51, 26), (62, 21)), ((51, 12), (62, 17))]
    for begin, end in arrows:
        axes.annotate("", end, begin, arrowprops={"arrowstyle": "->", "color": PLAIN})
    axes.plot([75, 75, 12], [15, 4, 4], color=OURS, linewidth=1)
    axes.annotate("", (12, 8), (12, 3.8), arrowprops={"arrowstyle": "->", "color": OURS})
    axes.text(44, 1.5, "a small step on the pixels", ha="center", color=OURS, fontsize=10)
    return figure


def save(figure: Any, name: str) -> None:
    figure.savefig(PICTURES / name, dpi=110, metadata={"Software": None})
    print(f"{(PICTURES / name).relative_to(ROOT)} written")


def draw_headline(axes: Any, reading: str) -> None:
    """Mean accuracy over the tasks seen, after each task, at the paper's own protocol; a band spans the seeds."""
    for number, (method, color) in enumerate(HEADLINE.items()):
        runs = list(headline_runs()[method].values())
        curves = [run.readings[reading].average_accuracy_after_task for run in runs]
        tasks = range(1, len(curves[0]) + 1)
        axes.plot(tasks, [mean(values) for values in zip(*curves, strict=True)], color=color, label=method, marker=".")
        lowest, highest = ([end(values) for values in zip(*curves, strict=True)] for end in (min, max))
        axes.fill_between(tasks, lowest, highest, color=color, alpha=0.2, linewidth=0)
        target = Targets("table_component").of(method, "cifar100", 1, "acc")
        if target:
            beside = len(tasks) + 0.35 + 0.2 * number
            axes.errorbar(beside, *target, color=color, fmt="D", markersize=4, capsize=2)
    axes.set(xlabel="tasks learned", ylabel="mean accuracy over these tasks %", xticks=range(1, 11), ylim=(0, 70))
    what = "the net as trained" if reading == "net" else "its moving average"
    axes.set_title(f"Answers of {what} (diamonds: the paper)", fontsize=12, loc="left")


def draw_bytes(axes: Any) -> None:
    """End accuracy at the paper's own protocol: the paper's figures, and runs of er-ema."""
    for row, label in PAPER_ROWS.items():
        found = {k: Targets("table_baselines").of(row, "cifar100", k, "acc") for k in (1, 5, 10)}
        points = [(100 * k * RAW_IMAGE, target[0]) for k, target in found.items() if target]
        axes.plot(*zip(*points, strict=True), marker="o", color=THEIRS if row == "scr+ssd" else PLAIN, linewidth=1)
        axes.annotate(label, points[-1], xytext=(6, -3), textcoords="offset points", color=PLAIN)
    for limit, accuracy, label in full_runs():
        axes.plot(limit, accuracy, marker="s", color=OURS)
        axes.annotate(label, (limit, accuracy), xytext=(7, -3), textcoords="offset points", color=OURS)
    axes.set(
        xscale="log", xlabel="bytes of images in the memory", ylabel="end accuracy %", ylim=(0, None), xlim=(2.2e5, 7e6)
    )
    axes.set_xticks([307_200, 1_536_000, 3_072_000], ["307 kB", "1.5 MB", "3.1 MB"])
    axes.set_xticks([], minor=True)
    axes.set_title("All of CIFAR-100, ten tasks (circles: the paper's figures)", fontsize=12, loc="left")


def runs_of(file: str, images: int) -> dict[str, list[RunResult]]:
    """Return the runs of a table of the paper on CIFAR-100 with so many images, by method, without other settings."""
    found: dict[str, list[RunResult]] = {}
    for name, saved in read(file)["results"].items():
        if match := re.fullmatch(rf"cifar100/([^-]+(?:-[a-z]+)?)-k{images}/seed-\d+", name):
            found.setdefault(match[1], []).append(RunResult.from_dict(saved))
    return found


def full_runs() -> list[tuple[int, float, str]]:
    """Return limit, mean end accuracy and label of the runs of er-ema at the paper's own protocol."""
    found: dict[tuple[int, int], list[float]] = {}
    for run in full_er_ema():
        chosen = run.config.options
        found.setdefault((chosen["memory_bytes"], chosen["repeats"]), []).append(run.average_end_accuracy)
    return [(limit, mean(ends), f"er-ema, {steps} steps") for (limit, steps), ends in found.items()]


def draw_seconds(axes: Any) -> None:
    """End accuracy at the small protocol against the seconds of training, all with the bytes of 30 raw images."""
    points: dict[str, list[RunResult]] = {}
    for file in ("paper-small-main", "paper-small-components"):
        for method, runs in runs_of(file, 30).items():
            points.setdefault(method, []).extend(runs)
    for name, saved in read("ablation")["results"].items():
        if name.rpartition("-")[0] in STEPS:
            points.setdefault(STEPS[name.rpartition("-")[0]], []).append(RunResult.from_dict(saved))
    for label, runs in points.items():
        color = OURS if label.startswith("er-ema") else THEIRS if label == "scr+ssd" else PLAIN
        seconds = mean(sum(run.seconds[part] for part in ("train", "store", "summarize", "theta")) for run in runs)
        accuracy = mean(run.average_end_accuracy for run in runs)
        axes.plot(seconds, accuracy, marker="s" if color == OURS else "o", color=color)
        place = PLACES.get(label, (6, -3))
        axes.annotate(label, (seconds, accuracy), xytext=place, textcoords="offset points", fontsize=10, color=color)
    axes.set(xscale="log", xlabel="seconds of training on one core", ylabel="end accuracy %", ylim=(0, None))
    axes.set_xticks([100, 200, 500, 1000], ["100", "200", "500", "1,000"])
    axes.set_xticks([], minor=True)
    axes.set_title("Three tasks of CIFAR-100, the bytes of 30 raw images", fontsize=12, loc="left")


if __name__ == "__main__":
    main()
