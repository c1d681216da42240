"""How fast and how large are other libraries on the same images, net and batch sizes?

The paper's sizes: batches of 10 images of 32×32, a memory of 100 images, the reduced ResNet-18 in float32. Experience
replay replays 10 images in one pass with the stream's, as the peers do; SCR replays 100 images in two views. Each
measurement is a process of its own, and the systems take turns. The peers and what this package needs are installed
into an environment of their own when that is missing.

    python benchmarks/peers.py --out results/peers.json
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import subprocess
import sys
import time
import venv
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
PEERS = ("avalanche-lib==0.6.0", "capymoa==0.15.1")
CLASSES, BATCH, MEMORY, SIZE = 100, 10, 100, 32
WARM_UP = 12
"""Batches before the clock starts; they fill the memory."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="file for the result")
    parser.add_argument("--env", type=Path, default=ROOT / ".peers", help="environment of the peers")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each system")
    parser.add_argument("--batches", type=int, default=30, help="batches in each measurement")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads")
    parser.add_argument("--measure", choices=SYSTEMS, help="measure one system in this process")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.batches, options.threads[0])))
        return
    python = environment(options.env)
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for _ in range(options.rounds):
        for threads in options.threads:
            for system in SYSTEMS:
                measured = in_process(python, system, options.batches, threads)
                found.setdefault(system, {}).setdefault(str(threads), []).append(measured)
                print(f"{system}, {threads} threads: {measured}", flush=True)
    if options.out:
        options.out.write_text(json.dumps({"versions": versions(python), "systems": middle(found)}, indent=1) + "\n")


def environment(folder: Path) -> Path:
    """Return the python of the environment, after making it if it is missing."""
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"installing {', '.join(PEERS)} into {folder}", flush=True)
        venv.create(folder, with_pip=True)
        installed = subprocess.run([python, "-m", "pip", "install", "-q", str(ROOT), *PEERS], check=False)
        if installed.returncode:
            sys.exit(
                f"the peers cannot be installed here (pip failed, see above): remove {folder} before you try again"
            )
    return python


def in_process(python: Path, system: str, batches: int, threads: int) -> dict[str, float]:
    """Measure a system in a process of its own."""
    command = [python, __file__, "--measure", system, "--batches", str(batches), "--threads", str(threads)]
    variables = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=variables)
    if done.returncode:
        sys.exit(f"{system} failed:\n{done.stderr[-2000:]}")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def versions(python: Path) -> dict[str, str]:
    """Return the versions of the packages that were compared."""
    names = ["engram", "torch", *(peer.partition("==")[0] for peer in PEERS)]
    code = f"import json, importlib.metadata as m; print(json.dumps({{n: m.version(n) for n in {names[1:]}}}))"
    own = {"engram": importlib.metadata.version("engram")}
    return own | json.loads(subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout)


def middle(found: dict[str, dict[str, list[dict[str, float]]]]) -> dict[str, Any]:
    """Return the median of each value, by system and threads."""
    return {
        system: {
            threads: {name: round(median(one[name] for one in values), 1) for name in values[0]}
            for threads, values in by_threads.items()
        }
        for system, by_threads in found.items()
    }


def measure(system: str, batches: int, threads: int) -> dict[str, float]:
    """Return images of the stream per second, and the most megabytes that were resident."""
    import resource

    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    images = torch.rand((WARM_UP + batches) * BATCH, 3, SIZE, SIZE)
    labels = torch.arange(len(images)) % CLASSES
    train = SYSTEMS[system]()
    split = WARM_UP * BATCH
    train(images[:split], labels[:split])
    start = time.perf_counter()
    train(images[split:], labels[split:])
    seconds = time.perf_counter() - start
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    return {"images_per_second": batches * BATCH / seconds, "resident_megabytes": resident}


Train = Callable[[Any, Any], None]
"""Trains on images (N,C,H,W) and labels (N,), in batches of ten."""


def engram(method: str) -> Train:
    from engram import Learner

    scheme = {"passes": "joint-mean"} if method == "er" else {}
    learner = Learner(method, memory_size=MEMORY, classes_total=CLASSES, scheme=scheme)

    def train(images: Any, labels: Any) -> None:
        for x, y in zip(images.split(BATCH), labels.split(BATCH), strict=True):
            learner.observe(x, y)

    return train


def net(classes: int | None = CLASSES) -> Any:
    """Return the reduced ResNet-18, with a linear layer on top if there are classes."""
    from torch import nn

    from engram.nets import ReducedResNet18

    backbone = ReducedResNet18(3, SIZE)
    return backbone if classes is None else nn.Sequential(backbone, nn.Linear(backbone.feature_width, classes))


def avalanche_er() -> Train:
    import torch
    from avalanche.training.plugins import ReplayPlugin
    from avalanche.training.supervised import Naive

    made = net()
    replay = ReplayPlugin(mem_size=MEMORY, batch_size=BATCH, batch_size_mem=BATCH)
    return avalanche(Naive, made, criterion=torch.nn.CrossEntropyLoss(), plugins=[replay])


def avalanche_scr() -> Train:
    import torch
    from avalanche.models import SCRModel
    from avalanche.training.supervised import SCR
    from torch import nn

    from engram.augmentations.view import ViewAugmentation, augment_view

    backbone = net(classes=None)
    width = backbone.feature_width
    projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 128))
    view, generator = ViewAugmentation(), torch.Generator()
    return avalanche(
        SCR,
        SCRModel(backbone, projection),
        augmentations=lambda images: augment_view(images, view, generator),
        mem_size=MEMORY,
        batch_size_mem=MEMORY,
        temperature=0.07,
    )


def avalanche(strategy: Any, model: Any, **settings: Any) -> Train:
    """Return training with a strategy of Avalanche; each call is one experience of its own."""
    import torch
    from avalanche.benchmarks import tensors_benchmark
    from avalanche.training.plugins import EvaluationPlugin

    made = strategy(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        train_mb_size=BATCH,
        evaluator=EvaluationPlugin(loggers=[]),
        **settings,
    )

    def train(images: Any, labels: Any) -> None:
        tensors = [(images, labels)]
        benchmark = tensors_benchmark(train_tensors=tensors, test_tensors=tensors, task_labels=[0])
        for experience in benchmark.train_stream:
            made.train(experience)

    return train


def capymoa_er() -> Train:
    import torch
    from capymoa.classifier import Finetune
    from capymoa.ocl.strategy import ExperienceReplay
    from capymoa.stream import Schema

    shape, names = (3, SIZE, SIZE), [str(index) for index in range(CLASSES)]
    pixels = [f"pixel{index}" for index in range(math.prod(shape))]
    schema = Schema.from_custom([*pixels, "label"], "label", {"label": names})
    model = torch.nn.Sequential(torch.nn.Unflatten(1, shape), net())
    inner = Finetune(schema, model, lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    learner = ExperienceReplay(inner, buffer_size=MEMORY)

    def train(images: Any, labels: Any) -> None:
        for x, y in zip(images.split(BATCH), labels.split(BATCH), strict=True):
            learner.batch_train(x.flatten(1), y)

    return train


SYSTEMS: dict[str, Callable[[], Train]] = {
    "engram er": lambda: engram("er"),
    "avalanche er": avalanche_er,
    "capymoa er": capymoa_er,
    "engram scr": lambda: engram("scr"),
    "avalanche scr": avalanche_scr,
}

if __name__ == "__main__":
    main()
