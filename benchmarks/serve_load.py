"""How fast is a learner that is served? Times of `/predict` and `/observe` on loopback, idle and while it learns.

The server runs in a process of its own with one thread that learns. Every request is a connection of its own, as
`engram.serve.Client` makes it. Batches have 10 images of 3×32×32; a prediction has 1. Learning directly is measured in
the same run, before and after, with the same batches.

    python benchmarks/serve_load.py --out results/serve.json
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engram.learner import Learner
from engram.serve import Client

METHOD, WIDTH, MEMORY = "er", 20, 200
BATCH, ASKED, CLASSES = 10, 1, 10
RANDOM = np.random.default_rng(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batches", type=int, default=300, help="batches to learn in each measurement")
    parser.add_argument("--requests", type=int, default=400, help="predictions to ask for in each measurement")
    options = parser.parse_args()
    torch.set_num_threads(1)
    batches = [(images(BATCH), RANDOM.integers(0, CLASSES, BATCH).tolist()) for _ in range(options.batches)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "learner"
        learner = Learner(METHOD, net={"width": WIDTH}, memory_size=MEMORY, threads=1)
        for batch in batches[:20]:
            learner.observe(*batch)
        learner.save(folder)
        before = directly(folder, batches)
        with serving(folder) as client:
            served, observed = through(client, batches)
            idle = times(lambda: client.predict(images(ASKED)), options.requests)
            with Teaching(client, batches) as teaching:
                busy = times(lambda: client.predict(images(ASKED)), options.requests)
        after = directly(folder, batches)
    direct = max(before, after)
    measured = {
        "settings": {
            "method": METHOD,
            "width": WIDTH,
            "memory_size": MEMORY,
            "images_per_batch": BATCH,
            "images_per_prediction": ASKED,
            "batches": options.batches,
            "requests": options.requests,
            "torch": torch.__version__,
        },
        "direct_batches_per_second": [round(before, 2), round(after, 2)],
        "served_batches_per_second": round(served, 2),
        "share_of_direct": round(served / direct, 3),
        "observe_while_learning": percentiles(observed),
        "predict_idle": percentiles(idle),
        "predict_while_learning": percentiles(busy),
        "batches_per_second_while_predicting": round(teaching.rate, 2),
    }
    print(json.dumps(measured, indent=1))
    options.out.write_text(json.dumps(measured, indent=1) + "\n")


def directly(folder: Path, batches: list[Any]) -> float:
    """Return batches per second of `Learner.observe`."""
    learner = Learner.load(folder)
    began = time.perf_counter()
    for batch in batches:
        learner.observe(*batch)
    return len(batches) / (time.perf_counter() - began)


def through(client: Client, batches: list[Any]) -> tuple[float, list[float]]:
    """Return batches per second of a server until all are learned, and the seconds of each acknowledged request.

    A full queue is waited for outside of these seconds.
    """
    began, seconds, position = time.perf_counter(), [], 0
    for batch in batches:
        while (status := client.status())["queued"] >= status["most_queued"] // 2:
            time.sleep(0.2)
        asked = time.perf_counter()
        position = client.observe(*batch)["position"]
        seconds.append(time.perf_counter() - asked)
    while client.status()["learned"] < position:
        time.sleep(0.02)
    return len(batches) / (time.perf_counter() - began), seconds


class Teaching(threading.Thread):
    """Keeps the queue of a server filled while inside."""

    def __init__(self, client: Client, batches: list[Any]) -> None:
        super().__init__()
        self.client, self.batches, self.rate = client, batches, 0.0
        self.enough = threading.Event()

    def run(self) -> None:
        index = 0
        while not self.enough.is_set():
            if self.client.status()["queued"] < 16:
                self.client.observe(*self.batches[index % len(self.batches)])
                index += 1
            else:
                time.sleep(0.1)

    def __enter__(self) -> Teaching:
        self.start()
        while self.client.status()["queued"] < 8:
            time.sleep(0.01)
        self.began, self.learned = time.perf_counter(), self.client.status()["learned"]
        return self

    def __exit__(self, *_: object) -> None:
        done = self.client.status()["learned"] - self.learned
        self.rate = done / (time.perf_counter() - self.began)
        self.enough.set()
        self.join()


def times(call: Callable[[], Any], count: int) -> list[float]:
    """Return the seconds of each of `count` calls, one after the other."""
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return seconds


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Return requests per second of one client, and the milliseconds that half, 95 % and 99 % stay below."""
    found = {f"p{share}_ms": round(1000 * float(np.percentile(seconds, share)), 2) for share in (50, 95, 99)}
    return {"requests_per_second": round(len(seconds) / sum(seconds), 1), **found}


def images(count: int) -> np.ndarray[Any, Any]:
    return RANDOM.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)


@contextmanager
def serving(folder: Path) -> Iterator[Client]:
    command = [sys.executable, "-m", "engram", "serve", str(folder), "--port", "0", "--threads", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://[^/]+", process.stdout.readline())
        assert found is not None, "the server did not start"
        yield Client(found[0])
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
