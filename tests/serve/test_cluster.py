"""Learners on a Ray cluster: one replica learns, two answer, and all of it behaves like one server."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engram import Learner
from engram.base.errors import InputError
from engram.serve import Client, ServerError
from tests.helpers import fingerprint
from tests.serve.serving import SECRET, batch_of, labeled, some_learner, undisturbed

pytest.importorskip("fastapi")
serve = pytest.importorskip("ray.serve")
import ray  # noqa: E402

from engram.serve.cluster import build  # noqa: E402

BATCHES = 6


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A cluster of this machine alone, with a front door for HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ray.init("local", num_cpus=8, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()
    ray.shutdown()


def test_one_replica_learns_and_two_answer_like_one_server(address: str, tmp_path: Path) -> None:
    folder = some_learner(tmp_path / "toy", 1)
    expected = undisturbed(folder, [labeled(index) for index in range(BATCHES)])
    (tmp_path / "token").write_text(SECRET)
    (tmp_path / "token").chmod(0o600)
    serve.run(build({"toy": str(folder), "predictors": "2", "token_file": str(tmp_path / "token")}), route_prefix="/")
    client = Client(address, SECRET, patience=120)
    with pytest.raises(ServerError) as refused:
        Client(address, "not-" + SECRET, patience=1).status()
    assert refused.value.status == 401
    for index in range(BATCHES):
        assert client.observe(*batch_of(index), batch_id=f"b{index}")["position"] == index + 1
    assert client.observe(*batch_of(0), batch_id="b0")["duplicate"]
    client.wait(BATCHES)
    x, _ = batch_of(50)
    assert all_answer_from(client, x, BATCHES) == expected.scores(x).tolist()
    assert client.predict(x) == list(expected.predict(x))
    deployed = serve.status().applications["default"].deployments
    replicas = {name: sum(found.replica_states.values()) for name, found in deployed.items()}
    assert replicas == {"Front": 1, "Learning": 1, "Predicting": 2}
    serve.delete("default")
    assert fingerprint(Learner.load(folder)) == fingerprint(expected), "it was saved when the replica ended"


def all_answer_from(client: Client, x: Any, position: int) -> Any:
    """Return the scores once twenty answers in a row come from a copy of that position, and are the same."""
    deadline, same, scores = time.monotonic() + 60, 0, None
    while same < 20:
        assert time.monotonic() < deadline
        answer = client.ranked(x, 1, scores=True)
        fits = answer["position"] == position and scores in (None, answer["scores"])
        same, scores = (same + 1, answer["scores"]) if fits else (0, None)
    return scores


def test_folders_without_a_learner_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give NAME=FOLDER, a folder that"):
        build({"toy": str(tmp_path)})
    with pytest.raises(InputError, match="at least one"):
        build({})
