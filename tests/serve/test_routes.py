"""The application: every route, and every refusal with its status, its reason and nothing of the program in it."""

import base64
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engram import Learner
from engram.serve.intake import Intake
from engram.serve.refusal import Refusal
from engram.serve.service import Service
from engram.serve.token import Token
from tests.helpers import fingerprint
from tests.serve.serving import SECRET, batch_of, labeled, npz, some_learner, undisturbed, web_client

pytest.importorskip("fastapi")
pytest.importorskip("python_multipart")

NPZ = {"content-type": "application/octet-stream"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Any]:
    with web_client(some_learner(tmp_path / "toy", 6)) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client for requests that change nothing."""
    with web_client(some_learner(tmp_path_factory.mktemp("shared") / "toy", 6)) as opened:
        yield opened


def service_of(client: Any) -> Service:
    found: Service = client.app.app.state.services["toy"]
    return found


def png(image: Any) -> bytes:
    written = io.BytesIO()
    Image.fromarray(image[0]).save(written, "PNG")
    return written.getvalue()


def wait(client: Any, position: int) -> None:
    assert service_of(client).publication.wait_for(position, 60)


def test_the_three_ways_to_send_a_batch_teach_the_same(tmp_path: Path) -> None:
    folder = some_learner(tmp_path / "toy", 1)
    expected = undisturbed(folder, [labeled(index) for index in (1, 2, 3, 4)])
    with web_client(folder) as client:
        x, y = batch_of(1)
        assert client.post("/observe?id=npz", content=npz(images=x, labels=np.array(y)), headers=NPZ).json() == {
            "id": "npz",
            "position": 1,
            "duplicate": False,
            "queued": 1,
        }
        x, y = batch_of(2)
        array = {"shape": list(x.shape), "dtype": "uint8", "data": base64.b64encode(x.tobytes()).decode()}
        assert client.post("/observe", json={"images": array, "labels": y}).json()["position"] == 2
        x, y = batch_of(3)
        pictures = [base64.b64encode(png(image)).decode() for image in x]
        assert client.post("/observe", json={"images": pictures, "labels": y}).json()["position"] == 3
        x, y = batch_of(4)
        files = [("images", (f"{n}.png", png(image))) for n, image in enumerate(x)]
        assert client.post("/observe", files=files, data={"labels": y}).json()["position"] == 4
        wait(client, 4)
    assert fingerprint(Learner.load(folder)) == fingerprint(expected)


def test_a_batch_sent_twice_is_learned_once(client: Any) -> None:
    x, y = batch_of(9)
    body = npz(images=x, labels=np.array(y))
    first, second = (client.post("/observe?id=mine", content=body, headers=NPZ).json() for _ in range(2))
    assert (first["duplicate"], second["duplicate"]) == (False, True)
    assert first["position"] == second["position"] == 1
    other = client.post("/observe?id=mine", content=npz(images=x, labels=np.array(y[::-1])), headers=NPZ)
    assert other.status_code == 409
    wait(client, 1)
    assert client.get("/status").json()["learned"] == 1


def test_predictions_are_those_of_the_learner(client: Any, tmp_path: Path) -> None:
    x, _ = batch_of(30)
    learner = Learner.load(tmp_path / "toy")
    answer = client.post("/predict?top=3&scores=true", content=npz(images=x), headers=NPZ).json()
    assert [each["label"] for each in answer["predictions"]] == list(learner.predict(x))
    assert [len(each["top"]) for each in answer["predictions"]] == [3] * 4
    assert answer["scores"] == learner.scores(x).tolist()


def test_the_memory_is_shown(client: Any, tmp_path: Path) -> None:
    learner = Learner.load(tmp_path / "toy")
    answer = client.get("/memory?first=1&count=3").json()
    slots = learner.memory.filled()[1:4]
    read = learner.memory.read(slots)
    assert answer["size"] == learner.memory.size
    assert [each["label"] for each in answer["images"]] == [learner.labels[y] for y in read.y.tolist()]
    for each, pixels in zip(answer["images"], read.x, strict=True):
        shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(each["png"]))).convert("L"))
        np.testing.assert_array_equal(shown, (pixels[0] * 255).round().numpy().astype(np.uint8))
    assert "png" not in client.get("/memory?count=1&pictures=false").json()["images"][0]


def test_the_status_counts_batches_and_bytes(client: Any, tmp_path: Path) -> None:
    x, y = batch_of(9)
    client.post("/observe", content=npz(images=x, labels=np.array(y)), headers=NPZ)
    wait(client, 1)
    status = client.get("/status").json()
    assert {name: status[name] for name in ("method", "healthy", "accepted", "learned", "published", "queued")} == {
        "method": "er",
        "healthy": True,
        "accepted": 1,
        "learned": 1,
        "published": 1,
        "queued": 0,
    }
    learner = undisturbed(tmp_path / "toy", [labeled(9)])
    assert status["bytes"] == dict(learner.footprint())
    assert status["memory"]["images"] == learner.memory.size


def test_a_learner_that_was_taught_nothing_says_so(tmp_path: Path) -> None:
    with web_client(some_learner(tmp_path / "toy")) as client:
        refused = client.post("/predict", content=npz(images=batch_of(0)[0]), headers=NPZ)
        assert refused.status_code == 409
        assert client.get("/memory").json() == {"position": 0, "size": 0, "images": []}
        assert client.get("/status").json()["labels"] == []


def test_the_download_is_a_learner(client: Any, tmp_path: Path) -> None:
    x, y = batch_of(9)
    client.post("/observe", content=npz(images=x, labels=np.array(y)), headers=NPZ)
    wait(client, 1)
    archive = zipfile.ZipFile(io.BytesIO(client.get("/download").content))
    archive.extractall(tmp_path / "there")
    expected = undisturbed(tmp_path / "toy", [labeled(9)])
    assert fingerprint(Learner.load(tmp_path / "there" / "learner")) == fingerprint(expected)


def test_several_learners_answer_by_name(tmp_path: Path) -> None:
    with web_client(some_learner(tmp_path / "one", 2), some_learner(tmp_path / "two", 0)) as client:
        assert client.get("/learners").json() == {"learners": ["one", "two"]}
        x, y = batch_of(0)
        body = npz(images=x, labels=np.array(y))
        assert client.post("/learners/two/observe", content=body, headers=NPZ).status_code == 200
        assert [client.get(f"/learners/{name}/status").json()["accepted"] for name in ("one", "two")] == [0, 1]
        assert client.get("/status").json() == client.get("/learners/one/status").json()
        assert client.get("/learners/three/status").status_code == 404
        text = client.get("/metrics").text
        assert 'engram_batches_accepted_total{learner="two"} 1' in text.splitlines()


def test_metrics_count_what_happened(client: Any) -> None:
    x, y = batch_of(9)
    body = npz(images=x, labels=np.array(y))
    for _ in range(2):
        client.post("/observe?id=mine", content=body, headers=NPZ)
    wait(client, 1)
    client.post("/predict", content=npz(images=x), headers=NPZ)
    client.post("/predict", content=b"nothing", headers=NPZ)
    lines = client.get("/metrics").text.splitlines()
    for name, count in {
        "batches_accepted_total": 1,
        "batches_duplicate_total": 1,
        "batches_learned_total": 1,
        "images_learned_total": 4,
        "images_predicted_total": 4,
        "requests_refused_total": 1,
        "observe_seconds_count": 2,
        "predict_seconds_count": 1,
        "published_position": 1,
        "healthy": 1,
    }.items():
        assert f'engram_{name}{{learner="toy"}} {count}' in lines


ONE_IMAGE = json.dumps(
    {
        "images": {"shape": [1, 1, 16, 16], "dtype": "uint8", "data": base64.b64encode(bytes(256)).decode()},
        "labels": ["LABEL"],
    }
)
REFUSED = {
    "wrong type": ("POST", "/observe", {"content": b"x", "headers": {"content-type": "text/plain"}}, 415),
    "no type": ("POST", "/predict", {"content": b"x"}, 415),
    "no labels": ("POST", "/observe", {"content": npz(images=batch_of(0)[0]), "headers": NPZ}, 422),
    "labels of another kind": (
        "POST",
        "/observe",
        {"content": npz(images=batch_of(0)[0], labels=np.arange(4)), "headers": NPZ},
        422,
    ),
    "labels of another count": (
        "POST",
        "/observe",
        {"content": npz(images=batch_of(0)[0], labels=np.array(["a"])), "headers": NPZ},
        422,
    ),
    "another shape": (
        "POST",
        "/predict",
        {"content": npz(images=np.zeros((1, 3, 16, 16), np.uint8)), "headers": NPZ},
        422,
    ),
    "an odd label": (
        "POST",
        "/observe",
        {"content": ONE_IMAGE.replace("LABEL", "\\ud800").encode(), "headers": {"content-type": "application/json"}},
        422,
    ),
    "an odd id": (
        "POST",
        "/observe?id=%20",
        {"content": npz(images=batch_of(0)[0], labels=np.array(list("abcd"))), "headers": NPZ},
        422,
    ),
    "half a form": (
        "POST",
        "/observe",
        {"content": b"--x\r\nnothing", "headers": {"content-type": "multipart/form-data; boundary=x"}},
        422,
    ),
    "a form without a boundary": ("POST", "/observe", {"headers": {"content-type": "multipart/form-data"}}, 400),
    "another field": ("POST", "/observe", {"files": {"more": b"x"}}, 422),
    "a file that is no picture": ("POST", "/observe", {"files": {"images": b"x"}, "data": {"labels": "a"}}, 422),
    "too many fields": ("POST", "/observe", {"files": [("images", b"x")] * 300}, 400),
    "top": ("POST", "/predict?top=0", {"content": b""}, 422),
    "first": ("GET", "/memory?first=-1", {}, 422),
    "count": ("GET", "/memory?count=201", {}, 422),
    "unknown path": ("GET", "/nothing", {}, 404),
    "unknown method": ("DELETE", "/observe", {}, 405),
    "unknown learner": ("GET", "/learners/..%2f..%2fetc/status", {}, 404),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_request_is_refused_with_a_reason_and_changes_nothing(name: str, shared: Any) -> None:
    method, path, request, status = REFUSED[name]
    before = fingerprint(service_of(shared).writer.learner)
    answer = shared.request(method, path, **request)
    assert answer.status_code == status, answer.text
    assert answer.json()["detail"]
    assert "Traceback" not in answer.text
    assert str(service_of(shared).folder) not in answer.text
    assert fingerprint(service_of(shared).writer.learner) == before
    assert shared.get("/status").json()["accepted"] == 0


def test_a_method_that_a_route_lacks_is_answered_with_those_it_has(shared: Any) -> None:
    assert shared.delete("/observe").headers["allow"] == "POST"


def test_a_full_queue_is_answered_with_429(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise Refusal(429, "64 batches wait to be learned", 1.3)

    monkeypatch.setattr(Intake, "accept", full)
    x, y = batch_of(0)
    answer = client.post("/observe", content=npz(images=x, labels=np.array(y)), headers=NPZ)
    assert (answer.status_code, answer.headers["retry-after"], answer.json()["retry_after"]) == (429, "2", 1.3)


def test_an_error_of_the_program_says_nothing_about_it(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Service, "status", lambda _: 1 / 0)
    client._transport.raise_server_exceptions = False
    answer = client.get("/status")
    assert answer.status_code == 500
    assert "division" not in answer.text
    assert "Traceback" not in answer.text


def test_when_learning_has_stopped_the_server_is_not_healthy(client: Any) -> None:
    assert client.get("/healthz").json() == {"healthy": True}
    service_of(client).writer.failure = "it stopped"
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (503, {"healthy": False})
    service_of(client).writer.failure = None


@pytest.mark.parametrize(
    "sent", [None, "Bearer wrong-wrong-wrong-wrong", f"Basic {SECRET}", f"Bearer {SECRET}x", SECRET]
)
def test_without_the_token_only_open_paths_answer(sent: str | None, tmp_path: Path) -> None:
    headers = {} if sent is None else {"authorization": sent}
    with web_client(some_learner(tmp_path / "toy", 2), token=Token(SECRET)) as client:
        for method, path in (("POST", "/observe"), ("POST", "/predict"), ("GET", "/status"), ("GET", "/memory")):
            answer = client.request(method, path, headers=headers)
            assert (answer.status_code, "Bearer TOKEN" in answer.json()["detail"]) == (401, True)
        for path in ("/metrics", "/download", "/learners", "/learners/toy/status", "/nothing"):
            assert client.get(path, headers=headers).status_code == 401
        for path in ("/", "/docs", "/healthz", "/openapi.json"):
            assert client.get(path, headers=headers).status_code == 200


def test_with_the_token_everything_answers(tmp_path: Path) -> None:
    with web_client(some_learner(tmp_path / "toy", 2), token=Token(SECRET)) as client:
        assert client.get("/status", headers={"authorization": f"Bearer {SECRET}"}).status_code == 200
        assert client.get("/status", headers={"authorization": f"bearer {SECRET}"}).status_code == 200


def test_the_description_names_every_route_and_type(shared: Any) -> None:
    schema = shared.get("/openapi.json").json()
    assert set(schema["paths"]) == {
        *("/observe", "/predict", "/status", "/memory", "/download"),
        *("/healthz", "/learners", "/metrics"),
    }
    kinds = {"application/json", "multipart/form-data", "application/octet-stream"}
    assert set(schema["paths"]["/observe"]["post"]["requestBody"]["content"]) == kinds
    text = shared.get("/docs").text
    assert "POST /observe" in text
    assert "http://" not in text + json.dumps(schema)
    assert "https://" not in text + json.dumps(schema)
