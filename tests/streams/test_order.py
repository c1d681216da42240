"""Class-incremental streams: what a batch holds, that nothing is lost or repeated, that seeds decide."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engram import InputError
from engram.streams import DataError, Dataset, class_incremental, from_arrays
from engram.streams.order import Scenario


def dataset(per_class: list[int]) -> Dataset:
    labels = np.repeat(np.arange(len(per_class)), per_class)
    x = np.zeros((len(labels), 1, 2, 2), dtype=np.uint8)
    test = np.arange(len(per_class))
    return from_arrays(x, labels, x[: len(test)], test)


@given(
    st.lists(st.integers(1, 30), min_size=2, max_size=12),
    st.sampled_from(["paper", "strict"]),
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(0, 3),
)
@settings(max_examples=80, deadline=None)
def test_every_image_is_delivered_once(counts: list[int], order: str, batch: int, width: int, seed: int) -> None:
    data = dataset(counts)
    width = min(width, len(counts))
    assume(order == "strict" or min(counts) >= batch)
    stream = class_incremental(data, seed, stream=order, batch=batch, classes_per_task=width)
    classes = [label for task in stream.tasks for label in task.classes]
    assert len(classes) == len(set(classes)) == len(counts)
    for task in stream.tasks:
        delivered = np.concatenate(task.batches)
        expected = np.flatnonzero(np.isin(data.train_y, task.classes))
        dropped = len(expected) - len(delivered)
        assert len(set(delivered.tolist())) == len(delivered)
        assert set(delivered.tolist()) <= set(expected.tolist())
        assert dropped == (len(expected) % batch if order == "paper" else 0)
        assert all(len(indices) == batch for indices in task.batches[:-1])


def test_paper_batches_hold_one_image_of_each_class() -> None:
    data = dataset([20] * 30)
    stream = class_incremental(data, seed=0, stream="paper", batch=10, classes_per_task=10)
    assert [len(task.batches) for task in stream.tasks] == [20, 20, 20]
    for task in stream.tasks:
        for _, y in stream.batches(task):
            assert sorted(y.tolist()) == sorted(task.classes)


def test_paper_batches_spread_more_classes_than_a_batch_holds() -> None:
    """25 classes in batches of 10: over any 25 images that start a round, each class appears once."""
    data = dataset([8] * 25)
    (task,) = class_incremental(data, seed=0, stream="paper", batch=10, classes_per_task=25).tasks
    labels = data.train_y[np.concatenate(task.batches)]
    assert len(labels) == 200
    for start in range(0, 200, 25):
        assert sorted(labels[start : start + 25].tolist()) == list(range(25))


def test_strict_batches_are_a_plain_shuffle() -> None:
    data = dataset([20] * 10)
    (task,) = class_incremental(data, seed=0, stream="strict", batch=10, classes_per_task=10).tasks
    balanced = [len(set(data.train_y[indices].tolist())) == 10 for indices in task.batches]
    assert not any(balanced)


def test_paper_shuffled_is_a_plain_shuffle_in_full_batches_that_announces_itself() -> None:
    data = dataset([21] * 20)
    stream = class_incremental(data, seed=0, stream="paper-shuffled", batch=10, classes_per_task=10)
    balanced = class_incremental(data, seed=0, stream="paper", batch=10, classes_per_task=10)
    for task, other in zip(stream.tasks, balanced.tasks, strict=True):
        assert task.classes == other.classes
        assert [len(indices) for indices in task.batches] == [10] * 21
        assert not any(len(set(data.train_y[indices].tolist())) == 10 for indices in task.batches)
    kinds = {name: Scenario.parse(name) for name in ("paper", "paper-shuffled", "iid", "strict", "blurry")}
    assert [name for name, kind in kinds.items() if kind.published] == ["paper", "paper-shuffled", "iid"]
    assert [name for name, kind in kinds.items() if kind.bounded] == ["paper", "paper-shuffled"]
    assert [kind.name for kind in kinds.values()] == ["paper", "paper-shuffled", "iid", "strict", "blurry(0.1)"]
    assert Scenario.parse("imbalanced").name == "imbalanced(50)"


@pytest.mark.parametrize(("name", "value"), [("class_order", "seeded"), ("instance_order", "keep")])
def test_an_order_that_is_none_is_refused(name: str, value: str) -> None:
    with pytest.raises(InputError, match=f"{name} is '{value}': need"):
        class_incremental(dataset([4] * 4), seed=0, **{name: value})


def test_limits() -> None:
    data = dataset([20] * 10)
    stream = class_incremental(data, seed=0, tasks=2, classes_per_task=3, images_per_class=5)
    assert len(stream.tasks) == 2
    assert stream.class_count == 6
    assert sum(len(indices) for task in stream.tasks for indices in task.batches) == 30
    first_five = np.concatenate([np.flatnonzero(data.train_y == label)[:5] for label in range(10)])
    assert all(set(indices.tolist()) <= set(first_five.tolist()) for task in stream.tasks for indices in task.batches)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tasks": 6, "classes_per_task": 2}, "has 10"),
        ({"stream": "papper"}, "did you mean 'paper'"),
        ({"batch": 0}, "at least 1"),
        ({"tasks": 0}, "at least 1"),
        ({"classes_per_task": 0}, "at least 1"),
        ({"stream": "paper", "classes_per_task": 1, "batch": 30}, "full batch"),
    ],
)
def test_impossible_streams_are_refused(options: dict, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        class_incremental(dataset([20] * 10), 0, **options)


def test_seed_decides_order_across_processes() -> None:
    code = (
        "from engram.streams import class_incremental, load_dataset;"
        "s = class_incremental(load_dataset('digits'), seed=7);"
        "print([t.classes for t in s.tasks], [b.tolist() for b in s.tasks[1].batches])"
    )
    outputs = {subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout for _ in range(2)}
    assert len(outputs) == 1
    stream, other = (class_incremental(dataset([9] * 10), seed) for seed in (7, 8))
    assert [task.classes for task in stream.tasks] != [task.classes for task in other.tasks]


def test_arrays_with_any_labels_become_a_dataset() -> None:
    x = np.zeros((3, 1, 2, 2), dtype=np.uint8)
    data = from_arrays(x, ["cat", "ant", "cat"], x[:1], ["cat"])
    assert data.class_names == ("ant", "cat")
    assert data.train_y.tolist() == [1, 0, 1]
    assert data.test_y.tolist() == [1]
    with pytest.raises(DataError, match="do not occur"):
        from_arrays(x, ["cat", "ant", "cat"], x[:1], ["dog"])
    with pytest.raises(DataError, match="2 labels"):
        from_arrays(x, ["cat", "ant"], x[:1], ["cat"])


def test_the_streams_of_published_results_stay_what_they_were() -> None:
    counts = [7, 9, 8, 7, 11, 10, 9, 8, 7, 12, 9, 10]
    digests = {}
    for order in ("paper", "strict", "iid"):
        stream = class_incremental(dataset(counts), 3, stream=order, batch=5, classes_per_task=4, epochs=2)
        indices = np.concatenate([batch for task in stream.tasks for batch in task.batches]).astype("<i8")
        digests[order] = hashlib.sha256(indices.tobytes()).hexdigest()[:16]
    assert digests == {"paper": "b063e454d0634370", "strict": "5f23729f57e2e906", "iid": "3ee4eb73b71a1946"}


SCENARIOS = ["strict", "paper", "blurry(0.1)", "blurry(0.5)", "imbalanced(5)", "imbalanced"]


@given(
    st.lists(st.integers(12, 40), min_size=4, max_size=12),
    st.sampled_from(SCENARIOS),
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(0, 3),
    st.sampled_from(["seed", "fixed"]),
    st.sampled_from(["shuffled", "kept"]),
)
@settings(max_examples=120, deadline=None)
def test_every_scenario_delivers_each_of_its_images_once(
    counts: list[int], order: str, batch: int, width: int, seed: int, class_order: str, instance_order: str
) -> None:
    data = dataset(counts)
    options = {"classes_per_task": min(width, len(counts) // 2), "class_order": class_order}
    stream = class_incremental(data, seed, stream=order, batch=batch, instance_order=instance_order, **options)
    assert stream.order == Scenario.parse(order).name
    per_task = [np.concatenate(task.batches) for task in stream.tasks]
    delivered = np.concatenate(per_task)
    assert len(set(delivered.tolist())) == len(delivered)
    if order.startswith(("strict", "blurry")):
        assert len(delivered) == len(data.train_y)
    if order == "paper":
        assert all(
            len(data.train_y[np.isin(data.train_y, task.classes)]) - len(own) < batch
            for task, own in zip(stream.tasks, per_task, strict=True)
        )
    if order.startswith("imbalanced"):
        reference = class_incremental(data, seed, stream=order, batch=batch, **options)
        assert set(delivered.tolist()) == {
            index for task in reference.tasks for b in task.batches for index in b.tolist()
        }
    if not order.startswith("blurry"):
        for task, own in zip(stream.tasks, per_task, strict=True):
            assert set(data.train_y[own].tolist()) == set(task.classes)
    if class_order == "fixed":
        assert [label for task in stream.tasks for label in task.classes] == list(range(len(counts)))
    if instance_order == "kept":
        for label in range(len(counts)):
            own = delivered[data.train_y[delivered] == label]
            assert (np.diff(own) > 0).all()


def test_a_blurry_task_has_its_share_of_other_tasks_images() -> None:
    data = dataset([100] * 30)
    stream = class_incremental(data, 0, stream="blurry(0.1)", classes_per_task=10)
    for task in stream.tasks:
        labels = data.train_y[np.concatenate(task.batches)]
        foreign = ~np.isin(labels, task.classes)
        assert len(labels) == 1000
        assert foreign.sum() == 100
        assert len(set(labels[foreign].tolist())) > 12, "from classes of both other tasks"
        first, second = np.flatnonzero(foreign).tolist()[0], np.flatnonzero(foreign).tolist()[-1]
        assert first < 200
        assert second > 800, "spread over the task"


def test_an_imbalanced_stream_has_a_long_tail() -> None:
    data = dataset([500] * 10)
    stream = class_incremental(data, 0, stream="imbalanced(50)", classes_per_task=5)
    labels = data.train_y[np.concatenate([batch for task in stream.tasks for batch in task.batches])]
    counts = sorted(np.bincount(labels, minlength=10).tolist(), reverse=True)
    assert counts == [round(500 * 50 ** (-rank / 9)) for rank in range(10)]
    assert (counts[0], counts[-1]) == (500, 10)
    other = class_incremental(data, 1, stream="imbalanced(50)", classes_per_task=5)
    rarest = [
        int(np.argmin(np.bincount(data.train_y[np.concatenate([b for t in s.tasks for b in t.batches])])))
        for s in (stream, other)
    ]
    assert rarest[0] != rarest[1], "which class is rare is the seed's choice"


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ("blury(0.1)", "did you mean 'blurry'"),
        ("blurry(1.5)", "between 0 and 1"),
        ("blurry(0)", "between 0 and 1"),
        ("blurry(0.1.2)", "not a number"),
        ("imbalanced(0.5)", "at least 1"),
        ("strict(3)", "takes no number"),
        ("blurry(x)", "unknown stream"),
    ],
)
def test_impossible_scenarios_are_refused(order: str, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        class_incremental(dataset([20] * 10), 0, stream=order)


def test_scenarios_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(DataError, match="needs at least two tasks"):
        class_incremental(dataset([20] * 4), 0, stream="blurry(0.1)", classes_per_task=4)
    with pytest.raises(DataError, match="iid stream shuffles"):
        class_incremental(dataset([20] * 4), 0, stream="iid", instance_order="kept")
