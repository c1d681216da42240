"""One limit for everything: it holds after every call, and what cannot fit is explained."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engram import InputError, Learner, SummaryMemory
from engram.memory import bounded_bytes
from engram.testing import small_options
from tests.helpers import feed, fingerprint, toy_images, toy_stream

NET = 1_100_000
"""More bytes than the nets of these learners and their states take."""


def learner(method: str, total: int, **changes: Any) -> Learner:
    options = {name: value for name, value in small_options(method).items() if name != "memory_size"}
    return Learner(method, **options | {"total_bytes": total} | changes)


def fixed_bytes(method: str, **changes: Any) -> int:
    """Bytes of all that is no image, once a few classes were seen."""
    seen = feed(learner(method, 10 * NET, **changes), toy_stream(2, 3))
    footprint = seen.footprint()
    return bounded_bytes(footprint, bool(changes.get("count_nets"))) - footprint["images"]


@settings(deadline=None, max_examples=12)
@given(
    method=st.sampled_from(["er", "er-ema", "scr+ssd", "er+gss", "ocm", "der++", "der+++ssd"]),
    codec=st.sampled_from(["webp(50)", "uint8", "float32"]),
    room=st.integers(2000, 60_000),
    counting=st.booleans(),
    classes=st.integers(1, 4),
)
def test_the_total_is_kept_after_every_call(method: str, codec: str, room: int, counting: bool, classes: int) -> None:
    kind: dict[str, Any] = {"codec": codec, "count_nets": counting}
    total = fixed_bytes(method, **kind) + room
    made, refusal = learner(method, total, **kind), "needs at least"
    for index, (x, y) in enumerate(toy_stream(3, 5, classes)):
        try:
            made.observe(x, y)
            if index == 8:
                made.boundary()
        except InputError as error:
            refusal = str(error)
        assert refusal.count("needs at least") == 1
        assert not made.iteration or bounded_bytes(made.footprint(), counting) <= total


def test_the_memory_takes_what_the_rest_leaves() -> None:
    total = fixed_bytes("er", codec="webp(50)") + 20_000
    made = feed(learner("er", total, codec="webp(50)"), toy_stream(2, 60))
    left = total - bounded_bytes(made.footprint(), counting_nets=False)
    assert 0 <= left < 2 * max(len(record) for record in made.memory.records)
    assert made.footprint()["images"] > 15_000


def test_a_learner_with_a_total_resumes_exactly(tmp_path: Path) -> None:
    for method in ("er-ema", "scr+ssd"):
        total = fixed_bytes(method) + 50_000
        one, other = learner(method, total), learner(method, total)
        batches = list(toy_stream(3, 6))
        feed(one, batches)
        feed(other, batches[:9]).save(tmp_path / method)
        other = feed(Learner.load(tmp_path / method), batches[9:])
        assert fingerprint(one) == fingerprint(other)


def test_what_cannot_fit_is_explained_and_the_figure_named_does() -> None:
    with pytest.raises(InputError, match="needs at least") as refused:
        learner("er-ema", 50_000).observe(toy_images([0, 1], 0), [0, 1])
    message = str(refused.value)
    assert "averaged" in message
    needed = int(message.split("needs at least ")[1].split(":")[0].replace(",", ""))
    made = learner("er-ema", needed)
    made.observe(toy_images([0, 1], 0), [0, 1])
    assert bounded_bytes(made.footprint(), counting_nets=False) <= needed


def test_queue_and_working_copies_stay_within_the_total_of_a_memory() -> None:
    memory = SummaryMemory(total_bytes=900_000, theta={"width": 8}, summarize={"queue": 8, "ready": 4, "interval": 3})
    for x, y in toy_stream(3, 8):
        memory.update(x, y)
        assert bounded_bytes(memory.footprint(), counting_nets=False) <= 900_000
    assert memory.rounds > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"total_bytes": "1MB", "memory_size": 5}, "memory_size and total_bytes both limit"),
        ({"count_nets": True}, "count_nets is about total_bytes"),
    ],
)
def test_limits_that_contradict_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Learner("er", **options)


def test_a_batch_that_does_not_fit_leaves_the_limit_as_it_was() -> None:
    """Many classes at once need queues that leave nothing to the memory. The learner stays as it was."""
    one, many = toy_images([0] * 4, 0), [label for label in range(12) for _ in range(4)]
    with pytest.raises(InputError, match="needs at least") as refused:
        learner("scr+ssd", 10_000).observe(one, [0] * 4)
    needed = int(str(refused.value).split("needs at least ")[1].split(":")[0].replace(",", ""))
    made = learner("scr+ssd", needed + 2_000)
    made.observe(one, [0] * 4)
    refusals = 0
    for index in range(20):
        before = made.memory.limit.bytes  # type: ignore[attr-defined]
        try:
            made.observe(toy_images(many, index), many)
        except InputError:
            refusals += 1
            assert made.memory.limit.bytes == before > 0  # type: ignore[attr-defined]
    assert refusals
