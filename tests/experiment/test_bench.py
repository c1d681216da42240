import pytest
import torch

from engram.base.precision import has_native_bf16
from engram.experiment import bench as module
from engram.experiment import bench_learners
from engram.experiment.bench import Target, bench, cpu_flags, interleaved, overhead


def test_measures_take_turns() -> None:
    calls: list[str] = []
    measures = {name: lambda name=name: calls.append(name) or float(len(calls)) for name in ("a", "b")}
    measured = interleaved(measures, 3)
    assert calls == ["a", "b"] * 3
    assert measured == {"a": [1.0, 3.0, 5.0], "b": [2.0, 4.0, 6.0]}


def test_overhead_is_that_of_a_task_of_the_paper() -> None:
    """73 rounds of 5 s and 500 steps of θ of 0.1 s, on 500 steps of 1 s: (365 + 50) / 500."""
    assert overhead([5.0], [0.1], [1.0], 1) == pytest.approx(83.0)
    assert overhead([5.0], [0.1], [1.0], 2) == pytest.approx(78.0)
    assert overhead([5.0, 5.0, 50.0], [0.1] * 3, [1.0, 1.0, 10.0], 1) == pytest.approx(83.0)


def test_a_target_knows_its_direction() -> None:
    assert Target("a", 4.9, 5, at_most=True).met
    assert not Target("a", 5.1, 5, at_most=True).met
    assert Target("a", 71, 70, at_most=False).met
    assert not Target("a", 69, 70, at_most=False).met


def test_a_small_bench_measures_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {
        "SIZE": 16,
        "REPLAY": 10,
        "MATRIX": 64,
        "CLASSES": 2,
        "TEST_IMAGES": 20,
        "LARGEST_OVERHEAD": {("exact", 1): 56, ("fast", 1): 20, ("exact bf16", 1): 35, ("features", 1): None},
    }
    for name, value in small.items():
        monkeypatch.setattr(module, name, value)
        if hasattr(bench_learners, name):
            monkeypatch.setattr(bench_learners, name, value)
    monkeypatch.setattr(module, "startup", lambda: {"help": 0.1, "first_batch": 7.0})
    batches: list[None] = []
    measured = bench([1], repetitions=1, progress=lambda: batches.append(None))
    one = measured["threads"]["1"]
    assert one["step"]["gflop"] > 0
    assert one["summarizing"]["exact k=1"]["overhead"] > one["summarizing"]["fast k=1"]["overhead"] > 0
    assert set(one["everything_else"]["seconds"]) == {
        "stream",
        "checks",
        "retrieval",
        "augmentation",
        "store",
        "progress",
        "checkpoint",
    }
    assert batches
    met = {target["name"]: target["met"] for target in measured["targets"]}
    native = has_native_bf16(torch.device("cpu"))
    assert len(met) == (10 if native else 7)
    assert measured["cpu_flags"] == cpu_flags()
    assert ("avx512_bf16" in cpu_flags()) <= native
    assert met["engram --help"]
    assert not met["engram run to the first batch"]
