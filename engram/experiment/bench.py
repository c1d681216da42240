"""Measure how fast this machine learns, as ratios: a training step relative to a matrix multiply, and summarizing and
everything else relative to a training step.

Every repetition measures all of these in turn, and ratios are taken within a repetition. So ratios stay steady even if
the speed of the machine changes from minute to minute. Seconds are medians over the repetitions.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from engram.augmentations.view import ViewAugmentation, augment_view
from engram.base.batch import Batch
from engram.base.precision import Precision, cpu_capabilities, has_native_bf16
from engram.base.validation import check_images, check_labels
from engram.experiment.bench_learners import (
    CLASSES,
    MODES,
    SIZE,
    random_images,
    replaying_learner,
    summarizing_learner,
    time_round,
)
from engram.learner import Learner
from engram.streams import class_incremental, from_arrays
from engram.summarize import StreamSummarizer

REPLAY = 100
MATRIX = 2048
TASK_ITERATIONS, TASK_ROUNDS = 500, 73
"""A task of the paper: 500 batches, and a summarizing round after 73 of them."""
TEST_IMAGES = 1000
"""Test images of the paper's first evaluation: ten classes with 100 images each. Class means take further images."""
CHECKPOINT_SECONDS = 60.0
"""Default number of seconds between checkpoints."""
LARGEST_OVERHEAD = {
    **{("exact", 1): 56, ("exact", 5): 65, ("exact", 10): 75, ("fast", 1): 20, ("fast", 10): 30},
    **{("exact bf16", 1): 35, ("features", 1): None, ("features bf16", 1): 12, ("features bf16", 10): 18},
}
"""Largest percentage of a training step in float32 that summarizing may add, by mode and slots per class. None where it
is only measured."""
LARGEST_BF16_SHARE = {"scr step": 62, "er step": 65}
"""Largest percentage of the time of a step in float32 that it may take in bf16, where the hardware has bf16."""
ER_REPLAY = 64


@dataclass(frozen=True)
class Target:
    """A measured value and its limit.

    Args:
        name: what was measured.
        value: the measured value.
        limit: what the value is compared with.
        at_most: whether the value should be at most the limit; otherwise at least.
        unit: "%" for a ratio in percent, or "s" for seconds.
    """

    name: str
    value: float
    limit: float
    at_most: bool
    unit: str = "%"

    @property
    def met(self) -> bool:
        """Whether the value keeps to the limit."""
        return self.value <= self.limit if self.at_most else self.value >= self.limit


def bench(threads: Sequence[int], repetitions: int = 5, progress: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Measure with each number of threads, and the start-up time once, and return all figures as plain data.

    Args:
        threads: the numbers of threads to measure with.
        repetitions: how often each figure is measured.
        progress: updates the progress display after a batch; its time is measured too.
    """
    before = torch.get_num_threads()
    measured: dict[str, Any] = {"threads": {}, "repetitions": repetitions, "cpu_flags": cpu_flags()}
    targets: list[Target] = []
    try:
        for count in threads:
            torch.set_num_threads(count)
            one = _with_threads(repetitions, progress)
            measured["threads"][str(count)] = one
            targets += _targets(one, f"{count} thread{'s' * (count > 1)}")
    finally:
        torch.set_num_threads(before)
    measured["startup"] = startup()
    targets += [
        Target("engram --help", measured["startup"]["help"], 0.5, True, "s"),
        Target("engram run to the first batch", measured["startup"]["first_batch"], 6, True, "s"),
    ]
    measured["targets"] = [asdict(target) | {"met": target.met} for target in targets]
    return measured


def cpu_flags() -> list[str]:
    """Return what this processor has of the instructions that decide its speed with nets."""
    wanted = ("avx2", "fma3", "avx512_f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "neon", "sve", "bf16")
    known = cpu_capabilities()
    return [flag for flag in wanted if known.get(flag)]


def interleaved(measures: Mapping[str, Callable[[], float]], repetitions: int) -> dict[str, list[float]]:
    """Return the seconds of each measure in each repetition. A repetition takes all measures in turn.

    The first repetition is slower, because the machine is cold. There is no extra one to warm up, which would cost half
    a minute: the median of five ignores the first.
    """
    passes = [{name: measure() for name, measure in measures.items()} for _ in range(repetitions)]
    return {name: [one[name] for one in passes] for name in measures}


def overhead(rounds: Sequence[float], theta: Sequence[float], steps: Sequence[float], theta_interval: int) -> float:
    """Return the time that summarizing adds to a task of the paper, in percent of the time of the training steps.

    The result is the median over the repetitions.

    Args:
        rounds: seconds of a summarizing round, in each repetition.
        theta: seconds of a training step of θ, in each repetition.
        steps: seconds of a training step, in each repetition.
        theta_interval: number of batches between two training steps of θ.
    """
    return 100 * median(
        (TASK_ROUNDS * a_round + TASK_ITERATIONS * theta_step / theta_interval) / (TASK_ITERATIONS * step)
        for a_round, theta_step, step in zip(rounds, theta, steps, strict=True)
    )


def seconds(work: Callable[[], Any]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def startup() -> dict[str, float]:
    """Return the seconds that `engram --help` takes and that `engram run` takes until it begins to train.

    The first is the fastest of three calls. The second is measured on the embedded stream.
    """
    command = [sys.executable, "-m", "engram"]
    helped = min(
        seconds(lambda: subprocess.run([*command, "--help"], check=True, capture_output=True)) for _ in range(3)
    )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        begun = time.perf_counter()
        fresh = {name: value for name, value in os.environ.items() if not name.startswith(("GLIBC_", "MALLOC_"))}
        process = subprocess.Popen([*command, "run", "--out", str(out)], stdout=subprocess.DEVNULL, env=fresh)
        try:
            while not (out / "events.jsonl").exists():
                if process.poll() is not None:
                    raise RuntimeError(
                        f"`engram run` ended with exit code {process.returncode} before it began to train"
                    )
                time.sleep(0.01)
            first = time.perf_counter() - begun
        finally:
            process.kill()
            process.wait()
    return {"help": helped, "first_batch": first}


def _with_threads(repetitions: int, progress: Callable[[], None]) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    learner = replaying_learner("scr", REPLAY, "float32", generator)
    x, y = random_images(CLASSES, generator), list(range(CLASSES))
    summarizing = {(mode, k): summarizing_learner(mode, k, generator) for mode, k in LARGEST_OVERHEAD}
    native = has_native_bf16(torch.device("cpu"))
    left, right = torch.rand(2, MATRIX, MATRIX, generator=generator)
    product = torch.empty(MATRIX, MATRIX)
    tests = random_images(TEST_IMAGES, generator)
    forward = _float_batches(tests)

    def evaluate_forward() -> None:
        with learner.model.evaluating():
            for part in forward:
                learner.model.features(part)

    measures: dict[str, Callable[[], float]] = {
        "matmul": lambda: seconds(lambda: torch.mm(left, right, out=product)),
        "step": lambda: seconds(lambda: learner.observe(x, y)),
        "forward": lambda: seconds(evaluate_forward),
        "evaluate": lambda: seconds(lambda: learner.predict(tests)),
    }
    precisions: tuple[Precision, ...] = ("float32", "bf16")
    for precision in precisions:
        replaying = replaying_learner("er", ER_REPLAY, precision, generator)
        measures[f"er step {precision}"] = lambda replaying=replaying: seconds(lambda: replaying.observe(x, y))  # type: ignore[misc]
    half = replaying_learner("scr", REPLAY, "bf16", generator)
    measures["scr step bf16"] = lambda: seconds(lambda: half.observe(x, y))
    theta: dict[str, list[float]] = {}
    for (mode, k), summarizer in summarizing.items():
        times = theta.setdefault(f"{mode} k={k}", [])
        measures[f"{mode} k={k}"] = lambda summarizer=summarizer, times=times: time_round(summarizer, times)  # type: ignore[misc]
    measured = interleaved(measures, repetitions)
    others = _everything_else(learner, x, y, progress)
    step = median(measured["step"])
    gflop = _gflop(lambda: learner.observe(x, y))
    matmul_gflop = 2 * MATRIX**3 / 1e9
    intervals = dict.fromkeys(MODES, 1) | {"fast": StreamSummarizer(fast=True).theta_interval}
    theta_of = {mode: theta["exact bf16 k=1" if "bf16" in mode else "exact k=1"] for mode in MODES}

    def share(one: str, of: str) -> float:
        return 100 * median(own / whole for own, whole in zip(measured[one], measured[of], strict=True))

    return {
        "native_bf16": native,
        "bf16_share": {
            "scr step": share("scr step bf16", "step"),
            "er step": share("er step bf16", "er step float32"),
        },
        "er_step_seconds": median(measured["er step float32"]),
        "matmul_gflops": matmul_gflop / median(measured["matmul"]),
        "step": {
            "seconds": step,
            "gflop": gflop,
            "share": 100
            * median(
                gflop / own / (matmul_gflop / matmul)
                for own, matmul in zip(measured["step"], measured["matmul"], strict=True)
            ),
        },
        "summarizing": {
            f"{mode} k={k}": {
                "round_seconds": median(measured[f"{mode} k={k}"]),
                "theta_seconds": median(theta_of[mode]) / intervals[mode],
                "overhead": overhead(measured[f"{mode} k={k}"], theta_of[mode], measured["step"], intervals[mode]),
            }
            for mode, k in LARGEST_OVERHEAD
        },
        "everything_else": {"seconds": others, "share": 100 * sum(others.values()) / step},
        "evaluation_share": share("forward", "evaluate"),
    }


def _targets(measured: Mapping[str, Any], threads: str) -> list[Target]:
    summarizing = [
        Target(
            f"summarizing, {mode}, k={k}, {threads}", measured["summarizing"][f"{mode} k={k}"]["overhead"], limit, True
        )
        for (mode, k), limit in LARGEST_OVERHEAD.items()
        if limit is not None and (measured["native_bf16"] or "bf16" not in mode)
    ]
    least_share = 70 if threads.startswith("1 ") else 65
    bf16 = [
        Target(f"{name} in bf16, share of float32, {threads}", measured["bf16_share"][name], limit, True)
        for name, limit in LARGEST_BF16_SHARE.items()
        if measured["native_bf16"]
    ]
    return [
        Target(f"scr step, share of the matrix multiply, {threads}", measured["step"]["share"], least_share, False),
        *bf16,
        *summarizing,
        Target(f"everything else, {threads}", measured["everything_else"]["share"], 5, True),
        Target(f"evaluation, share of forward only, {threads}", measured["evaluation_share"], 80, False),
    ]


def _everything_else(learner: Learner, x: Any, y: list[int], progress: Callable[[], None]) -> dict[str, float]:
    """Return the median seconds of each thing that a step does besides computing with the net.

    The seconds of a checkpoint are divided among the steps between two checkpoints.
    """
    generator = torch.Generator().manual_seed(0)
    ctx = learner._context()
    stream = Batch(torch.as_tensor(x) / 255, torch.tensor(y), torch.as_tensor(x))
    joined = torch.rand(REPLAY + CLASSES, 3, SIZE, SIZE, generator=generator)
    data = random_images(100, generator)
    labels = [index % CLASSES for index in range(100)]
    tasks = class_incremental(from_arrays(data, labels, data, labels), 0)
    batches = itertools.chain.from_iterable(tasks.batches(tasks.tasks[0]) for _ in itertools.count())
    with tempfile.TemporaryDirectory() as folder:
        pieces: dict[str, Callable[[], Any]] = {
            "stream": lambda: next(batches),
            "checks": lambda: (check_images(x, learner.image_shape), check_labels(y, len(x), learner.labels)),
            "retrieval": lambda: ctx.memory.read(learner.retrieval.select(stream, REPLAY, ctx)),
            "augmentation": lambda: augment_view(joined, ViewAugmentation(), generator),
            "store": lambda: learner.policy.store(stream, ctx),
            "progress": progress,
            "checkpoint": lambda: learner.save(folder),
        }
        taken = {name: median(seconds(piece) for _ in range(10)) for name, piece in pieces.items()}
    taken["checkpoint"] *= seconds(lambda: learner.observe(x, y)) / CHECKPOINT_SECONDS
    return taken


def _float_batches(images: np.ndarray[Any, Any]) -> tuple[torch.Tensor, ...]:
    parts: tuple[torch.Tensor, ...] = (torch.as_tensor(images) / 255).split(128)
    return parts


def _gflop(work: Callable[[], Any]) -> float:
    with FlopCounterMode(display=False) as counter:
        work()
    return float(counter.get_total_flops()) / 1e9
