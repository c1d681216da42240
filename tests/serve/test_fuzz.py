"""Malformed bodies and altered records: always a reason, never a change of state, never a failure of the program."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.faults.soak import amount
from tests.helpers import fingerprint
from tests.serve.serving import batch_of, npz, some_learner, web_client

pytest.importorskip("fastapi")
pytest.importorskip("python_multipart")

X, Y = batch_of(0)
GOOD: dict[str, tuple[str, bytes]] = {
    "npz": ("application/octet-stream", npz(images=X, labels=np.array(Y))),
    "json": (
        "application/json",
        json.dumps(
            {
                "images": {"shape": list(X.shape), "dtype": "uint8", "data": base64.b64encode(X.tobytes()).decode()},
                "labels": Y,
            }
        ).encode(),
    ),
    "form": (
        "multipart/form-data; boundary=b",
        b'--b\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\n\r\nGIF89a\r\n'
        b'--b\r\nContent-Disposition: form-data; name="labels"\r\n\r\na\r\n--b--\r\n',
    ),
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)
ARRAYS = st.fixed_dictionaries(
    {
        "shape": VALUES | st.lists(st.integers(-2, 40), max_size=5),
        "dtype": st.sampled_from(["uint8", "float32"]) | VALUES,
    },
    optional={"data": st.binary(max_size=40).map(lambda raw: base64.b64encode(raw).decode()) | VALUES},
)


@st.composite
def altered(draw: st.DrawFn) -> tuple[str, bytes]:
    """A good body, with some of its bytes changed, removed or repeated."""
    kind, good = GOOD[draw(st.sampled_from(sorted(GOOD)))]
    body = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body) - 1))
        change = draw(st.sampled_from(["flip", "cut", "repeat", "write"]))
        if change == "flip":
            body[at] ^= 1 << draw(st.integers(0, 7))
        elif change == "cut":
            del body[at : at + draw(st.integers(1, 400))]
        elif change == "repeat":
            body[at:at] = body[at : at + draw(st.integers(1, 400))]
        else:
            body[at : at + 8] = draw(st.binary(max_size=8))
        if not body:
            break
    return kind, bytes(body)


MADE = st.tuples(
    st.just("application/json"),
    st.fixed_dictionaries({}, optional={"images": VALUES | ARRAYS, "labels": VALUES, "more": VALUES}).map(
        lambda value: json.dumps(value).encode()
    ),
)
ANY = st.tuples(st.sampled_from([kind for kind, _ in GOOD.values()]), st.binary(max_size=200))


def test_malformed_bodies_are_refused_and_change_nothing(tmp_path: Path) -> None:
    with web_client(some_learner(tmp_path / "toy", 3), rate=1e6) as client:
        service: Any = client.app.app.state.services["toy"]
        before = fingerprint(service.writer.learner)

        @settings(max_examples=amount(250, 1000), deadline=None, suppress_health_check=list(HealthCheck))
        @given(body=st.one_of(altered(), MADE, ANY), path=st.sampled_from(["/predict", "/predict?top=3&scores=1"]))
        def ask(body: tuple[str, bytes], path: str) -> None:
            answer = client.post(path, content=body[1], headers={"content-type": body[0]})
            assert answer.status_code == 200 or 400 <= answer.status_code < 500, answer.text
            assert answer.status_code == 200 or answer.json()["detail"]

        @settings(max_examples=amount(250, 1000), deadline=None, suppress_health_check=list(HealthCheck))
        @given(body=st.one_of(altered(), MADE, ANY))
        def teach(body: tuple[str, bytes]) -> None:
            accepted = service.intake.journal.last
            answer = client.post("/observe", content=body[1], headers={"content-type": body[0]})
            if answer.status_code == 200:  # a changed pixel is no error
                assert service.intake.journal.last == accepted + 1
            else:
                assert 400 <= answer.status_code < 500, answer.text
                assert answer.json()["detail"]
                assert service.intake.journal.last == accepted

        ask()
        assert fingerprint(service.writer.learner) == before
        teach()
        assert service.publication.wait_for(service.intake.journal.last, 60)
        assert service.metrics.counts["batches_failed"] == 0, "what is acknowledged can be learned"
