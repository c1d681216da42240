"""The tables and single figures of README.md and docs/*.md, each from a file under results/."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from engram.evaluation.metrics import Interval
from engram.experiment.config import changed_settings
from engram.experiment.result import RunResult
from engram.methods import METHODS
from engram.paper.catalogue import EXPERIMENTS, METHODS_COMPARED
from engram.paper.grid import read_any_result
from engram.paper.outcome import Entry, PaperTable, gather
from engram.paper.scales import SCALES
from engram.paper.targets import Targets
from engram.report.tables import compare, read_runs

ROOT = Path(__file__).parents[1]


def read(name: str) -> Any:
    """Return what a file under results/ holds."""
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


def results(name: str) -> list[RunResult]:
    """Return the results of runs in a file under results/."""
    return [run.result for run in read_runs([ROOT / "results" / f"{name}.json"])]


def summarizing(result: RunResult) -> dict[str, Any]:
    """Return the settings of the summarizer that are not the default."""
    changed = changed_settings(result.config)
    return {name.removeprefix("summarize."): value for name, value in changed.items() if name.startswith("summarize.")}


def of(name: str, method: str, **settings: Any) -> list[RunResult]:
    """Return the results of a method, if settings of the summarizer are given those that have just these."""
    found = [result for result in results(name) if result.method == method]
    return [result for result in found if not settings or summarizing(result) == settings]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def kilobytes(count: float) -> str:
    return f"{count / 1000:,.0f}"


def half() -> str:
    rows = []
    for result in results("half-seed0"):
        *early, end = result.evaluation.average_accuracy_after_task
        after = [*(f"{value:.1f}" for value in early), f"**{end:.1f}**"]
        rows.append(
            [
                f"`{result.method}`",
                *after,
                f"{result.evaluation.average_forgetting:.1f}",
                f"{result.evaluation.learning_accuracy:.1f}",
            ]
        )
    head = ("method", "task 1", "2", "3", "4", "5 = end", "forgetting", "learning accuracy")
    return table(head, rows)


def half_cost() -> str:
    rows = []
    for result in results("half-seed0"):
        seconds, held = result.seconds, result.footprint
        theta = held["theta"] + (held["optimizer"] if result.summarize_rounds else 0)
        rows.append(
            [
                f"`{result.method}`",
                *(f"{seconds[part]:.0f}" for part in ("train", "summarize", "theta", "evaluate", "total")),
                *(kilobytes(held[part]) for part in ("images", "queue", "working_copies", "net")),
                kilobytes(theta),
                kilobytes(held["total"] - held["originals"]),
            ]
        )
    head = ("method", "train", "summarize", "θ", "evaluate", "total", "images", "queue", "working copies", "net")
    return table((*head, "θ and its optimizer", "all state"), rows)


def half_bytes() -> str:
    rows = []
    for result in results("half-bytes-seed0"):
        *early, end = result.evaluation.average_accuracy_after_task
        held = result.footprint
        rows.append(
            [
                f"`{result.method}`{', two steps per batch' * (result.config.options['repeats'] == 2)}",
                result.config.options["codec"],
                f"{result.memory_images:,}",
                *(f"{value:.1f}" for value in early),
                f"**{end:.1f}**",
                *(kilobytes(held[part]) for part in ("images", "queue", "working_copies")),
                kilobytes(held["total"]),
                *(f"{result.seconds[part]:.0f}" for part in ("train", "total")),
            ]
        )
    head = ("method", "codec", "images at the end", "task 1", "2", "3", "4", "5 = end", "images kB", "queue kB")
    return table((*head, "working copies kB", "all state kB", "training s", "total s"), rows)


def full_er_ema() -> list[RunResult]:
    """The runs of er-ema at the paper's own protocol, by bytes and then by steps."""
    runs = results("full-er-ema")
    return sorted(runs, key=lambda run: (run.config.options["memory_bytes"], run.config.options["repeats"], run.seed))


def full_bytes() -> str:
    """Accuracy at the paper's own protocol: the paper's methods in its smallest memory, and er-ema in all three."""
    groups: dict[tuple[str, str, int, int], list[RunResult]] = {}
    paper_runs = [run for own in headline_runs().values() for run in own.values() if run.method in HEADLINE]
    for run in [*paper_runs, *full_er_ema()]:
        chosen = run.config.options
        limit = chosen["memory_bytes"] or 3 * 32 * 32 * chosen["memory_size"]
        groups.setdefault((run.method, chosen["codec"], limit, chosen["repeats"]), []).append(run)
    rows = []
    for (method, codec, limit, repeats), runs in groups.items():
        after = [run.evaluation.average_accuracy_after_task for run in runs]
        rows.append(
            [
                f"`{method}`",
                "raw" if codec == "float32" else codec,
                kilobytes(limit),
                f"{mean(run.memory_images for run in runs):,.0f}",
                str(repeats),
                ", ".join(str(run.seed) for run in sorted(runs, key=lambda run: run.seed)),
                f"{mean(one[4] for one in after):.1f}",
                f"**{Interval.of([one[-1] for one in after])}**",
                precisions(runs),
            ]
        )
    for row, k in (("scr+ssd", 1), ("scr+ssd", 5), ("scr+ssd", 10)):
        published = Targets("table_main").of(row, "cifar100", k, "acc")
        assert published is not None
        kept = [kilobytes(100 * k * 3 * 32 * 32), f"{100 * k:,}"]
        figure = f"**{published[0]} ± {published[1]}**"
        rows.append([f"`{row}`, the paper's figure", "raw", *kept, "1", "ten", "", figure, "float32"])
    head = (
        "method",
        "images as",
        "kB",
        "images",
        "steps a batch",
        "seeds",
        "after task 5",
        "after task 10",
        "computed in",
    )
    return table(head, rows)


def batch_seconds() -> str:
    """Milliseconds of a batch by method, and what of them is storing."""
    rows = []
    for name, one in read("batch-seconds").items():
        method = re.split(r"[, ]", name)[0]
        written = f"`{method}`{name.removeprefix(method)}"
        rows.append([written, f"{1000 * one['seconds']:,.0f}", f"{100 * one['store_share']:.1f} %"])
    return table(("method", "ms a batch", "share of storing"), rows)


def batch_time(name: str) -> Callable[[], str]:
    """The time of a batch of ten images with a method."""
    return lambda: f"{1000 * read('batch-seconds')[name]['seconds']:,.0f} ms"


def precisions(runs: Sequence[RunResult]) -> str:
    """The precisions that runs computed in, the commonest first."""
    counted = Counter(run.config.options["precision"] for run in runs)
    return " and ".join(name for name, _ in counted.most_common())


def full_bytes_before() -> str:
    """The runs of er-ema at the paper's own protocol from before it trained with pcr's loss."""
    rows = []
    for result in results("full-bytes-seed0"):
        after, chosen = result.evaluation.average_accuracy_after_task, result.config.options
        kept = [chosen["codec"], f"{result.memory_images:,}", str(chosen["repeats"])]
        rows.append([*kept, "softmax", f"{after[0]:.1f}", f"{after[4]:.1f}", f"**{after[-1]:.1f}**"])
        for asked in read("full-answers"):
            if asked["config"] == result.config.to_dict():
                end = mean(asked["accuracies"]["nearest class mean, mirrored"])
                rows.append([*kept, "class means, the same run", "", "", f"**{end:.1f}**"])
    return table(("images as", "images", "steps a batch", "answers by", "task 1", "5", "10 = end"), rows)


def method_names(of_paper: bool) -> str:
    """The names of the methods that the paper compares, or of the others."""
    chosen = METHODS_COMPARED if of_paper else [name for name in METHODS if name not in METHODS_COMPARED]
    return ", ".join(f"`{name}`" for name in chosen)


def full_answers(classifier: str) -> Callable[[], str]:
    """The end accuracy of the run that was answered anew, by a classifier."""
    return lambda: f"{mean(read('full-answers')[0]['accuracies'][classifier]):.1f}"


def half_bytes_end(method: str, codec: str, budget: int = 153_600, repeats: int = 1) -> Callable[[], str]:
    """The end accuracy of a row, by default with the budget of the table and no more."""
    wanted = {"codec": codec, "repeats": repeats, "memory_bytes": budget}

    def value() -> str:
        (one,) = [
            result for result in of("half-bytes-seed0", method) if wanted.items() <= dict(result.config.options).items()
        ]
        return f"{one.average_end_accuracy:.1f}"

    return value


def streams() -> str:
    rows = [
        [
            f"`{result.config.options['stream']}`",
            f"`{result.method}`",
            listed(result.evaluation.average_accuracy_after_task),
            f"{result.evaluation.average_forgetting:.1f}",
            str(result.summarize_rounds),
            f"{result.seconds['total']:.0f}",
        ]
        for result in results("small-streams-seed0")
    ]
    return table(("stream", "method", "after each task", "forgetting", "rounds", "seconds"), rows)


def transfer() -> str:
    kinds = ("memory", "originals", "random")
    rows = [
        [str(one["seed"]), one["net"], str(one["images"]), *(f"{mean(one[kind]):.1f}" for kind in kinds)]
        for one in read("transfer")
    ]
    head = ("seed", "fresh net", "images", "exported memory", "the images it began from", "random real images")
    return table(head, rows)


def transfer_over(kind: str) -> Callable[[], str]:
    """Difference of the memory to real images, an interval over seeds; of each the mean of its nets and draws."""

    def value() -> str:
        by_seed: dict[int, list[float]] = {}
        for one in read("transfer"):
            by_seed.setdefault(one["seed"], []).append(mean(one["memory"]) - mean(one[kind]))
        return Interval.of([mean(differences) for differences in by_seed.values()]).signed()

    return value


def of_paper(file: str) -> str:
    """A table that `engram paper` wrote, made again from the results it holds."""
    return paper_table(file).figures()


def paper_table(file: str) -> PaperTable:
    content = read(file)
    name, scale = content["name"], SCALES[content["scale"]].computing_in(content.get("precision", "float32"))
    finished = {folder: read_any_result(result, file) for folder, result in content["results"].items()}
    return gather(name, EXPERIMENTS[name], scale, finished, content["seeds"])


HEADLINE_COLUMN = "cifar100 K=100"
HEADLINE = ("scr", "scr+dynamic", "scr+ssd")
"""The rows of the components table that are methods of their own."""


def headline_runs() -> dict[str, dict[int, RunResult]]:
    """The runs at the paper's own protocol, K=100, by row and seed: in float32 where there is one, else in bf16."""
    found: dict[str, dict[int, RunResult]] = {}
    files = ("paper-full-components-bf16", "paper-full-components")
    there = [read(name)["results"] for name in files if (ROOT / "results" / f"{name}.json").exists()]
    for cell in EXPERIMENTS["components"].cells(SCALES["full"]):
        if cell.column != HEADLINE_COLUMN:
            continue
        own = found.setdefault(cell.row, {})
        for saved in there:
            own |= {
                seed: RunResult.from_dict(saved[cell.folder(seed).as_posix()])
                for seed in range(10)
                if cell.folder(seed).as_posix() in saved
            }
    return found


def full_components() -> str:
    """The runs of the components table at the paper's own protocol, K=100, by both readings of each run."""
    made, runs = paper_table("paper-full-components"), headline_runs()
    rows = []
    for row, own in runs.items():
        paper = _paper_figure(made.entries[row, HEADLINE_COLUMN, "acc"])
        if not own:
            rows.append([f"`{row}`", "missing", "", "", "", "", paper])
            continue
        shown = []
        for reading in ("net", "averaged"):
            ends = {seed: run.readings[reading].average_end_accuracy for seed, run in own.items()}
            base = {seed: run.readings[reading].average_end_accuracy for seed, run in runs["scr"].items()}
            changes = [ends[seed] - base[seed] for seed in sorted(ends.keys() & base.keys())]
            against = "" if row == "scr" or not changes else Interval.of(changes).signed(len(ends))
            shown += [str(Interval.of([ends[seed] for seed in sorted(ends)])), against]
        seeds = [f"{seed}{' (bf16)' * (own[seed].config.options['precision'] == 'bf16')}" for seed in sorted(own)]
        rows.append([f"`{row}`", ", ".join(seeds), *shown, paper])
    head = ("method", "seeds", "end accuracy %", "over scr", "of the averaged net", "over scr", "the paper")
    return table(head, rows)


def _paper_figure(entry: Entry) -> str:
    if entry.paper is None:
        return ""
    return f"{entry.paper[0]}" if entry.paper[1] is None else f"{entry.paper[0]} ± {entry.paper[1]}"


def full_fine_tune(pick: Callable[[RunResult], str]) -> Callable[[], str]:
    """Of the only run at the full scale."""

    def value() -> str:
        (result,) = results("paper-full-main")
        return pick(result)

    return value


def last_stretch() -> str:
    rows = []
    for one in read("half-last-stretch"):
        averages = [draw["average"] for draw in one["draws"]]
        past = mean(mean(draw["accuracies"][:-1]) for draw in one["draws"])
        last = mean(draw["accuracies"][-1] for draw in one["draws"])
        figures = (mean(averages), min(averages), max(averages), past, last)
        bold, *rest = (f"{value:.1f}" for value in figures)
        rows.append([f"`{one['method']}`", str(len(averages)), f"**{bold}**", *rest])
    return table(("method", "draws", "mean", "lowest", "highest", "past tasks", "last task"), rows)


def comparison(name: str) -> str:
    rows = [
        [
            f"`{row.name}`",
            str(len(row.seeds)),
            str(row.accuracy),
            row.difference.signed() if row.difference else "",
            str(row.forgetting),
            f"{row.seconds['total']:.0f}",
            kilobytes(row.image_bytes),
            kilobytes(row.total_bytes),
        ]
        for row in compare(results(name))
    ]
    head = ("method", "n", "accuracy %", "difference", "forgetting %", "seconds", "memory kB", "all state kB")
    return table(head, rows)


MILD, HARSH = {"fast": True}, {"fast": True, "real_images": 10, "theta_interval": 3}


def fast_losses(settings: dict[str, Any]) -> list[float]:
    """Exact minus fast at the end, seed by seed."""
    exact = [result for result in results("small-fast-seeds3") if not summarizing(result)]
    fast = {result.seed: result for result in of("small-fast-seeds3", "scr+ssd", **settings)}
    return [one.average_end_accuracy - fast[one.seed].average_end_accuracy for one in exact]


def fast() -> str:
    rows = []
    exact = [result for result in results("small-fast-seeds3") if not summarizing(result)]
    for result in exact:
        row = [str(result.seed), listed(result.evaluation.average_accuracy_after_task)]
        for settings in (MILD, HARSH):
            (other,) = [one for one in of("small-fast-seeds3", "scr+ssd", **settings) if one.seed == result.seed]
            row.append(listed(other.evaluation.average_accuracy_after_task))
            row.append(f"{other.average_end_accuracy - result.average_end_accuracy:+.1f}")
        rows.append(row)
    head = ("seed", "exact, after tasks 1, 2, 3", "16 images, θ every 2nd", "at the end", "10 images, θ every 3rd")
    return table((*head, "at the end"), rows)


def summarizing_seconds(chosen: list[RunResult]) -> str:
    return f"{mean(one.seconds['summarize'] + one.seconds['theta'] for one in chosen):.0f}"


def tiny_mini() -> str:
    names = {"tiny-imagenet": "Tiny-ImageNet, 64 px", "mini-imagenet": "Mini-ImageNet, 84 px"}
    rows = [
        [
            names[result.config.options["dataset"]],
            f"`{result.method}`",
            listed(result.evaluation.average_accuracy_after_task),
            str(result.summarize_rounds),
            f"{result.seconds['total']:.0f}",
            kilobytes(result.footprint["images"]),
            kilobytes(result.footprint["queue"] + result.footprint["working_copies"]),
        ]
        for result in results("tiny-mini-seed0")
    ]
    head = ("data set", "method", "after each task", "rounds", "seconds", "memory kB", "queue and working copies kB")
    return table(head, rows)


def smoke() -> str:
    rows = [
        [
            f"`{result.method}`",
            f"{result.average_end_accuracy:.1f}",
            f"{result.evaluation.matrix[-1][-1]:.1f}",
            f"{result.seconds['total']:.0f}",
        ]
        for result in results("smoke-seed0")
    ]
    return table(("method", "end accuracy", "last task", "seconds"), rows)


def codecs() -> str:
    """Bytes of an image by codec and size, and what is lost of the smallest."""
    found = read("codecs")
    sizes = sorted({one["pixels"] for one in found})
    rows = []
    for codec in dict.fromkeys(one["codec"] for one in found):
        by_size = {one["pixels"]: one for one in found if one["codec"] == codec}
        least = by_size[sizes[0]]["decibels"]
        lost = "no loss" if least is None else f"{least:.1f} dB"
        rows.append([f"`{codec}`", *(f"{by_size[size]['bytes']:,.0f}" for size in sizes), lost])
    return table(("codec", *(f"bytes at {size} px" for size in sizes), f"PSNR at {sizes[0]} px"), rows)


def bench() -> str:
    """What `engram bench` measured on two processors, and its targets."""
    rows = []
    measured = [{target["name"]: target for target in read(name)["targets"]} for name in ("bench", "bench-zen5")]
    for name, target in measured[0].items():
        digits = 1 if target["unit"] == "%" else 2
        bound = f"{'at most' if target['at_most'] else 'at least'} {target['limit']} {target['unit']}"
        shown = [f"{one[name]['value']:.{digits}f} {target['unit']}" for one in measured]
        missed = [f"{value}: **not met**" for value in shown]
        cells = [each if one[name]["met"] else no for one, each, no in zip(measured, shown, missed, strict=True)]
        rows.append([name, bound, *cells])
    return table(("what", "target", "on an earlier processor", "on Zen 5"), rows)


def step_seconds(name: str, thread: str) -> Callable[[], str]:
    """The seconds of a training step of scr that `engram bench` measured."""
    return lambda: f"{read(name)['threads'][thread]['step']['seconds']:.2f} s"


def peers() -> str:
    """Images a second and resident memory of this package and of others, by threads."""
    found = read("peers")
    rows = []
    for system, by_threads in found["systems"].items():
        library, method = system.split()
        speeds = [f"{one['images_per_second']:.1f}" for one in by_threads.values()]
        memory = max(one["resident_megabytes"] for one in by_threads.values())
        version = found["versions"]["avalanche-lib" if library == "avalanche" else library]
        rows.append([f"`{method}`", f"{library} {version}", *speeds, f"{memory:,.0f}"])
    threads = next(iter(found["systems"].values()))
    head = ("method", "library", *(f"images a second, {count} thread{'s' * (count != '1')}" for count in threads))
    return table((*head, "resident MB"), rows)


def speedups() -> str:
    return table(("what", "before", "after"), [[one["what"], one["before"], one["after"]] for one in read("speedups")])


def growth(what: str) -> str:
    """Seconds a step at each value, and the last over the first."""
    measured = read("growth")[what]
    values = list(next(iter(measured.values())))
    rows = []
    for method, seconds in measured.items():
        ratio = seconds[values[-1]] / seconds[values[0]]
        rows.append([f"`{method}`", *(f"{seconds[value]:.2f}" for value in values), f"{ratio:.2f}"])
    return table(("method", *(f"{int(value):,}" for value in values), "last / first"), rows)


def growth_stream() -> str:
    rows = []
    for method, stream in read("growth")["stream"].items():
        windows = stream["windows"]
        half = len(windows) // 2
        early, late = (mean(one["ms"] for one in part) for part in (windows[1:half], windows[half:]))
        slope = f"{stream['resident_bytes_a_batch']:,.0f}"
        rows.append([f"`{method}`", f"{windows[-1]['batch']:,}", f"{early:.1f}", f"{late:.1f}", slope])
    head = ("method", "batches", "ms a step, first half", "second half", "resident bytes a batch, second half")
    return table(head, rows)


def mean_difference(name: str) -> Callable[[], str]:
    """Of scr+ssd over scr+dynamic."""

    def value() -> str:
        ends = [
            {one.seed: one.average_end_accuracy for one in of(name, method)} for method in ("scr+ssd", "scr+dynamic")
        ]
        return f"{mean(ends[0][seed] - ends[1][seed] for seed in ends[0]):.1f}"

    return value


def serve() -> str:
    measured = read("serve")
    rows = {
        "`/predict`, idle": "predict_idle",
        "`/predict`, while batches are learned": "predict_while_learning",
        "`/observe`, while batches are learned": "observe_while_learning",
    }
    head = ("request", "requests per second", "50 % below", "95 % below", "99 % below")
    return table(
        head,
        [
            [
                name,
                f"{measured[key]['requests_per_second']:.0f}",
                *(f"{measured[key][f'p{share}_ms']:.1f} ms" for share in (50, 95, 99)),
            ]
            for name, key in rows.items()
        ],
    )


def serve_direct() -> float:
    """Return batches per second of `Learner.observe`, the better of the two measurements."""
    return float(max(read("serve")["direct_batches_per_second"]))


def latent_step() -> str:
    """Milliseconds of a batch, by method and by what is frozen."""
    rows = [
        [
            f"`{one['method']}`",
            f"`{one['freeze']}`" if one["freeze"] else "nothing",
            *(f"{one[f'{part}_ms']:.1f}" for part in ("front", "train", "store", "observe")),
        ]
        for one in read("latent-step")
    ]
    return table(("method", "frozen", "front", "training step", "storing", "all of `observe`"), rows)


def precision() -> str:
    """End accuracies of the small protocol in both precisions, by both readings, and the differences seed by seed."""
    found: dict[tuple[str, str], dict[int, RunResult]] = {}
    for result in results("small-precision"):
        found.setdefault((result.method, result.config.options["precision"]), {})[result.seed] = result
    rows = [
        [f"`{method}`", *row]
        for method in dict.fromkeys(method for method, _ in found)
        for row in by_reading(found[method, "float32"], found[method, "bf16"])
    ]
    return table(("method", "reading", "seeds", "float32", "bf16", "difference"), rows)


def features() -> str:
    """End accuracies of scr+ssd by matching loss, both in bf16, with differences seed by seed."""
    by_gradients = {run.seed: run for run in results("small-precision") if run.method == "scr+ssd" and in_bf16(run)}
    by_features = {run.seed: run for run in results("small-features")}
    return table(("reading", "seeds", "gradients", "features", "difference"), by_reading(by_gradients, by_features))


def by_reading(before: dict[int, RunResult], after: dict[int, RunResult]) -> list[list[str]]:
    """Rows for the net and for its average: end accuracies of two groups of runs by seed, and their differences."""
    rows = []
    for reading, name in (("net", "the net"), ("averaged", "its average")):
        pairs = [
            [runs[seed].readings[reading].average_end_accuracy for runs in (before, after)]
            for seed in sorted(before.keys() & after.keys())
        ]
        ends = [str(Interval.of([pair[side] for pair in pairs])) for side in (0, 1)]
        rows.append([name, str(len(pairs)), *ends, Interval.of([new - old for old, new in pairs]).signed()])
    return rows


def in_bf16(run: RunResult) -> bool:
    return bool(run.config.options["precision"] == "bf16")


def compiling() -> str:
    """Seconds of a pass, plain and compiled, and of compiling."""
    rows = [
        [
            f"`{one['step']}`",
            one["precision"],
            f"{one['plain']:.3f} s",
            f"{one['compiled']:.3f} s",
            f"{one['compiled'] / one['plain']:.2f}",
            f"{one['compiling']:.0f} s",
        ]
        for one in read("compile")["steps"]
    ]
    return table(("images of a step of", "precision", "plain", "compiled", "compiled / plain", "to compile"), rows)


def ablation() -> str:
    """End accuracy by what was changed in er-ema, with differences to it seed by seed, most accurate first."""
    found: dict[str, dict[str, RunResult]] = {}
    for name, saved in read("ablation")["results"].items():
        variant, _, seed = name.rpartition("-")
        found.setdefault(variant, {})[seed] = RunResult.from_dict(saved)
    base = found["er-ema"]
    rows = []
    for variant, runs in found.items():
        ends = [run.average_end_accuracy for run in runs.values()]
        shared = [seed for seed in runs if seed in base]
        changes = [runs[seed].average_end_accuracy - base[seed].average_end_accuracy for seed in shared]
        batches = [run.images_seen / run.config.options["batch"] for run in runs.values()]
        steps = [1000 * run.seconds["train"] / count for run, count in zip(runs.values(), batches, strict=True)]
        cells = [
            "`er-ema` as it is" if variant == "er-ema" else variant,
            str(len(runs)),
            f"{mean(run.memory_images for run in runs.values()):,.0f}",
            f"{mean(steps):.0f}",
            str(Interval.of(ends)),
            "" if variant == "er-ema" else Interval.of(changes).signed(len(changes)),
        ]
        rows.append((mean(ends), cells))
    head = ("what is changed", "n", "images", "ms a batch", "end accuracy", "difference")
    return table(head, [cells for _, cells in sorted(rows, key=lambda row: -row[0])])


def ablation_answers() -> str:
    """End accuracy of er-ema's runs by classifier."""
    found: dict[str, list[float]] = {}
    for answers in read("ablation")["answers"].values():
        for classifier, accuracies in answers.items():
            found.setdefault(classifier, []).append(mean(accuracies))
    return table(("classifier", "end accuracy"), [[name, str(Interval.of(ends))] for name, ends in found.items()])


def latent_replay() -> str:
    """Accuracy, bytes and time by limit and by what is kept: means over seeds, with intervals for accuracy."""
    rows: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for one in read("latent-replay"):
        rows.setdefault((one["memory_bytes"], one["variant"]), []).append(one)
    shown = [
        [
            kilobytes(limit),
            variant,
            f"{mean(one['memory_images'] for one in runs):,.0f}",
            str(Interval.of([one["accuracy"] for one in runs])),
            kilobytes(mean(one["footprint"]["total"] - one["footprint"]["net"] for one in runs)),
            kilobytes(mean(one["footprint"]["total"] for one in runs)),
            f"{mean(one['ms_per_batch'] for one in runs):.1f}",
        ]
        for (limit, variant), runs in rows.items()
    ]
    head = ("limit kB", "kept", "how many", "accuracy %", "all but the net kB", "all kB", "ms a batch")
    return table(head, shown)


TABLES: dict[str, Callable[[], str]] = {
    "latent step": latent_step,
    "full, bytes": full_bytes,
    "full, bytes, before": full_bytes_before,
    "half": half,
    "half, bytes": half_bytes,
    "half cost": half_cost,
    "streams": streams,
    "transfer": transfer,
    "components": lambda: of_paper("paper-small-components"),
    "main": lambda: of_paper("paper-small-main"),
    "queue": lambda: of_paper("paper-small-queue"),
    "components, full": full_components,
    "last stretch": last_stretch,
    "demo": lambda: comparison("demo"),
    "demo, 5 seeds": lambda: comparison("demo-seeds5"),
    "demo, K=20": lambda: comparison("demo-k20"),
    "fast": fast,
    "tiny and mini": tiny_mini,
    "smoke": smoke,
    "ablation": ablation,
    "ablation answers": ablation_answers,
    "latent replay": latent_replay,
    "precision": precision,
    "codecs": codecs,
    "serve": serve,
    "bench": bench,
    "peers": peers,
    "batch seconds": batch_seconds,
    "speed-ups": speedups,
    "compile": compiling,
    "features": features,
    "growth, classes": lambda: growth("classes"),
    "growth, memory": lambda: growth("memory_size"),
    "growth, stream": growth_stream,
}


def files_of(version: str) -> str:
    """The files with runs that a version made."""
    every = sorted(path.stem for path in (ROOT / "results").glob("*.json"))
    *names, last = [f"`{name}.json`" for name in every if version in versions_in(read(name))]
    return f"{', '.join(names)} and {last}"


def versions_in(saved: Any) -> set[str]:
    """Return the versions that made the runs in what a file under results/ holds."""
    inner = saved.values() if isinstance(saved, dict) else saved if isinstance(saved, list) else ()
    own = {str(saved["version"])} if isinstance(saved, dict) and "version" in saved else set()
    return own.union(*map(versions_in, inner))


VALUES: dict[str, Callable[[], str]] = {
    "batch scr": batch_time("scr"),
    "batch scr+ssd": batch_time("scr+ssd"),
    "batch er-ema": batch_time("er-ema, 2 steps, in bf16"),
    "step on the earlier": step_seconds("bench", "1"),
    "step on Zen 5": step_seconds("bench-zen5", "1"),
    "methods of the paper": lambda: method_names(of_paper=True),
    "other methods": lambda: method_names(of_paper=False),
    "files of 0.2.0": lambda: files_of("0.2.0"),
    "soak kills": lambda: f"{read('soak')['kills']:,}",
    "soak malformed batches": lambda: f"{read('soak')['malformed_batches']:,}",
    "soak altered checkpoints": lambda: f"{read('soak')['altered_checkpoints']:,}",
    "soak altered files": lambda: f"{read('soak')['altered_files']:,}",
    "soak altered archives": lambda: f"{read('soak')['altered_archives']:,}",
    "soak server kills": lambda: f"{read('soak')['server_kills']:,}",
    "soak served batches": lambda: f"{read('soak')['served_batches']:,}",
    "soak loads": lambda: f"{read('soak')['loads_beside_saves']:,}",
    "soak batches": lambda: f"{read('soak')['batches']:,}",
    "full answers softmax": full_answers("softmax, mirrored"),
    "full answers means": full_answers("nearest class mean, mirrored"),
    "latent step": lambda: f"{read('latent-step')[0]['train_ms']:.1f} ms",
    "soak state": lambda: f"{read('soak')['state_bytes']:,}",
    "soak resident": lambda: f"{read('soak')['resident_bytes_in_a_thousand_batches'] / 1024:.0f}",
    "serve direct": lambda: f"{serve_direct():.1f}",
    "serve served": lambda: f"{read('serve')['served_batches_per_second']:.1f}",
    "serve share": lambda: f"{100 * read('serve')['share_of_direct']:.0f} %",
    "serve step": lambda: f"{1000 / serve_direct():.0f} ms",
    "demo-seeds5 ssd over dynamic": mean_difference("demo-seeds5"),
    "demo-k20 ssd over dynamic": mean_difference("demo-k20"),
    "half-bytes scr raw": half_bytes_end("scr", "uint8"),
    "half-bytes scr total": half_bytes_end("scr", "uint8", budget=2_365_440),
    "half-bytes scr repeats": half_bytes_end("scr", "uint8", repeats=2),
    "half-bytes ssd raw": half_bytes_end("scr+ssd", "uint8"),
    "half-bytes scr webp": half_bytes_end("scr", "webp(50)"),
    "half-bytes ssd webp": half_bytes_end("scr+ssd", "webp(50)"),
    "full fine-tune": full_fine_tune(lambda result: f"{result.average_end_accuracy:.1f}"),
    "full fine-tune seconds": full_fine_tune(lambda result: f"{result.seconds['total']:.0f}"),
    "transfer over originals": transfer_over("originals"),
    "transfer over random": transfer_over("random"),
    "fast loss": lambda: f"{-mean(fast_losses(MILD)):+.1f}",
    "fast interval": lambda: str(Interval.of([-loss for loss in fast_losses(MILD)])).split(" ± ")[1],
    "fast harsh loss": lambda: f"{mean(fast_losses(HARSH)):.1f}",
    "fast seconds": lambda: summarizing_seconds(of("small-fast-seeds3", "scr+ssd", **MILD)),
    "exact seconds": lambda: summarizing_seconds([r for r in results("small-fast-seeds3") if not summarizing(r)]),
}
