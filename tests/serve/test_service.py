"""One served learner, without a network: it learns in order, answers meanwhile, and a crash changes no bit."""

import threading
import time
from pathlib import Path

import pytest
import torch

from engram import Learner
from engram.base.errors import InputError, NonFiniteLossError, NotReadyError
from engram.persistence.checkpoint import CheckpointError
from engram.persistence.lock import BusyError
from engram.serve.refusal import Refusal
from engram.serve.service import Service
from tests.helpers import fingerprint, small_learner
from tests.serve.serving import (
    batch_of,
    crash,
    labeled,
    service,
    settings_with,
    some_learner,
    undisturbed,
    wait_for,
)


def teach(opened: Service, batches: range) -> None:
    for index in batches:
        opened.observe(f"id-{index}", labeled(index))


def test_a_served_learner_ends_as_one_that_is_called_directly(tmp_path: Path) -> None:
    some_learner(tmp_path / "served", 2)
    expected = undisturbed(tmp_path / "served", [labeled(index) for index in range(10, 22)])
    with service(tmp_path / "served") as opened:
        teach(opened, range(10, 22))
        wait_for(opened, 12)
    assert fingerprint(Learner.load(tmp_path / "served")) == fingerprint(expected)


@pytest.mark.parametrize("method", ["er", "scr+ssd"])
def test_crashes_change_nothing(method: str, tmp_path: Path) -> None:
    """Killed after a checkpoint, before one, and while batches wait."""
    folder = some_learner(tmp_path / "served", 0, method)
    expected = undisturbed(folder, [labeled(index) for index in range(16)])
    opened = Service(folder, settings_with())
    teach(opened, range(4))
    wait_for(opened, 4)
    crash(opened)
    assert Learner.load(folder).iteration == 0
    opened = Service(folder, settings_with(checkpoint_every=0.01))
    teach(opened, range(4, 8))
    wait_for(opened, 8)
    crash(opened)
    opened = Service(folder, settings_with())
    teach(opened, range(8, 16))
    crash(opened)
    with service(folder) as opened:
        teach(opened, range(16))
        wait_for(opened, 16)
        assert opened.status()["accepted"] == 16, "every batch was sent twice and is there once"
    assert fingerprint(Learner.load(folder)) == fingerprint(expected)


def test_after_a_damaged_checkpoint_the_one_before_and_the_journal_give_the_same_state(tmp_path: Path) -> None:
    folder = some_learner(tmp_path / "served")
    expected = undisturbed(folder, [labeled(index) for index in range(6)])
    for batches in (range(3), range(3, 6)):
        with service(folder) as opened:
            teach(opened, batches)
            wait_for(opened, batches.stop)
    newest = folder / (folder / "CURRENT").read_text().strip()
    for path in newest.glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-9])
    with service(folder) as opened:
        wait_for(opened, 6)
        assert opened.observe("id-5", labeled(5))["duplicate"]
    assert fingerprint(Learner.load(folder)) == fingerprint(expected)


def test_the_journal_is_shortened_by_checkpoints(tmp_path: Path) -> None:
    folder = some_learner(tmp_path / "served")
    with service(folder, checkpoint_every=0.01) as opened:
        for index in range(6):
            teach(opened, range(index, index + 1))
            wait_for(opened, index + 1)
            deadline = time.monotonic() + 20
            while opened.writer.saved <= index and time.monotonic() < deadline:
                time.sleep(0.01)
        assert opened.writer.saved == 6
    sizes = [path.stat().st_size for path in (folder / "journal").glob("*.log")]
    assert len(sizes) <= 2, "the last two checkpoints need no more"
    assert opened.intake.journal.bytes == sum(sizes)


def test_a_batch_that_diverges_is_left_out_and_the_next_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_learner(tmp_path / "served")
    real = Learner.observe

    def observe(learner: Learner, x: torch.Tensor, y: list[str]) -> None:
        if len(x) == 3:
            raise NonFiniteLossError("the loss became nan")
        real(learner, x, y)

    monkeypatch.setattr(Learner, "observe", observe)
    with service(folder) as opened:
        opened.observe("a", labeled(0))
        opened.observe("bad", labeled(1, size=3))
        opened.observe("b", labeled(2))
        wait_for(opened, 3)
        counts = opened.metrics.counts
        assert (counts["batches_learned"], counts["batches_failed"], counts["images_learned"]) == (2, 1, 8)
    assert Learner.load(folder).iteration == 2


def test_an_unexpected_error_stops_learning_and_keeps_what_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_learner(tmp_path / "served")
    monkeypatch.setattr(Learner, "observe", lambda *_: 1 / 0)
    opened = Service(folder, settings_with())
    opened.observe("a", labeled(0))
    opened.writer.join(20)
    assert not opened.status()["healthy"]
    with pytest.raises(Refusal, match="learning has stopped"):
        opened.observe("b", labeled(1))
    opened.close()
    monkeypatch.undo()
    with service(folder) as opened:
        wait_for(opened, 1)
    assert Learner.load(folder).iteration == 1


def test_a_checkpoint_that_cannot_be_written_is_counted_and_the_journal_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_learner(tmp_path / "served")

    def refuses(*_: object) -> None:
        raise CheckpointError("no space left")

    with service(folder) as opened:
        teach(opened, range(3))
        wait_for(opened, 3)
        monkeypatch.setattr(Learner, "save", refuses)
    assert opened.metrics.counts["checkpoint_failures"] == 1
    monkeypatch.undo()
    with service(folder) as opened:
        assert opened.writer.saved == 0
        wait_for(opened, 3)
    assert Learner.load(folder).iteration == 3


def test_predictions_are_answered_while_a_batch_is_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step that is under way ends only after the answer, so the answer cannot have waited for it."""
    folder = some_learner(tmp_path / "served", 3)
    expected = list(Learner.load(folder).predict(batch_of(50)[0]))
    answered, learning = threading.Event(), threading.Event()

    def observe(learner: Learner, x: torch.Tensor, y: list[str]) -> None:
        with learner.lock:
            learning.set()
            assert answered.wait(10)
            real_observe(learner, x, y)

    real_observe = Learner.observe
    monkeypatch.setattr(Learner, "observe", observe)
    with service(folder) as opened:
        opened.observe("slow", labeled(9))
        assert learning.wait(30)
        answer = opened.predict(batch_of(50)[0], 1, all_scores=False)
        answered.set()
        assert answer["position"] == 0
        assert [each["label"] for each in answer["predictions"]] == expected
        wait_for(opened, 1)
        assert opened.predict(batch_of(50)[0], 1, all_scores=False)["position"] == 1


def test_an_answer_ranks_labels_with_scores_and_probabilities(tmp_path: Path) -> None:
    folder = some_learner(tmp_path / "served", 8)
    learner = Learner.load(folder)
    images = batch_of(50)[0]
    with service(folder) as opened:
        answer = opened.predict(images, 2, all_scores=True)
    torch.testing.assert_close(torch.tensor(answer["scores"]), learner.scores(images), atol=0, rtol=0)
    assert answer["labels"] == learner.labels
    for each, likeliest, shares in zip(
        answer["predictions"], learner.predict(images), learner.predict_proba(images), strict=True
    ):
        assert len(each["top"]) == 2
        assert each["label"] == each["top"][0]["label"] == likeliest
        assert each["top"][0]["probability"] == pytest.approx(max(shares))
        assert each["top"][0]["score"] >= each["top"][1]["score"]


def test_a_learner_without_a_class_cannot_answer(tmp_path: Path) -> None:
    with service(some_learner(tmp_path / "served")) as opened, pytest.raises(NotReadyError):
        opened.predict(batch_of(0)[0], 1, all_scores=False)


def test_what_the_owner_saved_with_the_learner_is_kept(tmp_path: Path) -> None:
    small_learner("er", threads=1).save(tmp_path / "served", {"note": [1, 2]})
    for index in range(2):
        with service(tmp_path / "served") as opened:
            teach(opened, range(index, index + 1))
            wait_for(opened, index + 1)
            assert opened.before == {"note": [1, 2]}


def test_a_folder_is_served_once(tmp_path: Path) -> None:
    folder = some_learner(tmp_path / "served")
    with service(folder), pytest.raises(BusyError):
        Service(folder, settings_with())
    with service(folder):
        pass


def test_a_learner_that_something_else_saved_to_is_refused(tmp_path: Path) -> None:
    folder = some_learner(tmp_path / "served")
    opened = Service(folder, settings_with())
    teach(opened, range(2))
    crash(opened)
    small_learner("er").save(folder)
    with pytest.raises(InputError, match="something else saved there"):
        Service(folder, settings_with())


def test_a_folder_without_a_learner_and_a_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="--new METHOD"):
        Service(tmp_path / "nothing", settings_with())
    some_learner(tmp_path / "run" / "checkpoint")
    with pytest.raises(InputError, match="folder of a run"):
        Service(tmp_path / "run", settings_with())


def test_a_restart_does_not_warn_of_threads_that_the_learner_has_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = some_learner(tmp_path / "toy", 1)
    before = torch.get_num_threads()
    try:
        for threads in (2, 1):  # of the process
            torch.set_num_threads(threads)
            with service(folder):
                pass
    finally:
        torch.set_num_threads(before)
    assert "may differ in the last bits" not in caplog.text
