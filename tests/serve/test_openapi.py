"""The routes as they describe themselves: requests made from the description get described answers."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engram.serve.service import Service
from tests.faults.soak import amount
from tests.helpers import fingerprint
from tests.serve.serving import settings_with, some_learner, web_client

pytest.importorskip("fastapi")
pytest.importorskip("python_multipart")
uvicorn = pytest.importorskip("uvicorn")
schemathesis = pytest.importorskip("schemathesis")

from schemathesis.generation import GenerationMode  # noqa: E402
from schemathesis.specs.openapi import checks  # noqa: E402

from engram.serve.application import create_application  # noqa: E402
from engram.serve.server import open_services  # noqa: E402

OPERATIONS = 8
CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with web_client(some_learner(tmp_path_factory.mktemp("described") / "toy", 3), rate=1e9) as opened:
        yield opened


def test_every_answer_is_described(client: Any) -> None:
    described = client.get("/openapi.json").json()
    assert len([method for path in described["paths"].values() for method in path]) == OPERATIONS
    for path, methods in described["paths"].items():
        for facts in methods.values():
            (content,) = facts["responses"]["200"]["content"].values()
            assert "$ref" in content["schema"] or path in ("/metrics", "/download")
            assert "type" not in content["schema"] or path in ("/metrics", "/download")
            assert (path == "/healthz") == ("security" not in facts), "a token is asked for"
    assert described["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"


def test_a_thousand_requests_made_from_the_description_are_answered_as_described(tmp_path: Path) -> None:
    """Requests that fit the description, and requests that break it, sent to a real server in this process."""
    with real_server(some_learner(tmp_path / "toy", 3)) as (service, url):
        asked: Counter[str] = Counter()
        for found in schemathesis.openapi.from_url(f"{url}/openapi.json").get_all_operations():
            operation = found.ok()

            @settings(
                max_examples=amount(150, 1500), deadline=None, suppress_health_check=list(HealthCheck), database=None
            )
            @given(case=st.one_of(operation.as_strategy(), operation.as_strategy(GenerationMode.NEGATIVE)))
            def ask(case: Any) -> None:
                accepted, before = service.intake.journal.last, fingerprint(service.writer.learner)
                answer = case.call(base_url=url)
                case.validate_response(answer, checks=CHECKS)
                asked[case.operation.path] += 1
                if answer.status_code != 200:
                    assert (service.intake.journal.last, fingerprint(service.writer.learner)) == (accepted, before)

            ask()
        assert sum(asked.values()) >= 1000
        assert service.writer.failure is None


@contextmanager
def real_server(folder: Path) -> Iterator[tuple[Service, str]]:
    """Serve a learner from a thread; give it and the address."""
    given = settings_with(rate=1e9)
    app: Any = create_application(lambda: open_services({"toy": folder}, given), given.limits, None)
    serving = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="on"))
    thread = threading.Thread(target=serving.run, daemon=True)
    thread.start()
    while not serving.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = serving.servers[0].sockets[0].getsockname()[1]
    try:
        yield app.app.state.services["toy"], f"http://127.0.0.1:{port}"
    finally:
        serving.should_exit = True
        thread.join(60)
