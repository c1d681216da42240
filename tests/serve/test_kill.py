"""A real server, killed again and again while batches are sent, ends as one that nobody killed. And what it refuses."""

import base64
import io
import json
import random
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engram import Learner
from engram.serve import Client, ServerError
from tests.faults.soak import amount
from tests.helpers import fingerprint, start_engram
from tests.serve.serving import SECRET, batch_of, labeled, server, some_learner, undisturbed

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("python_multipart")

KILLS, BATCHES = amount(3, 20), amount(120, 1000)
SENDERS = 2
PAGE = Path(__file__).parents[2] / "docs" / "serve.md"


class Sender(threading.Thread):
    """Sends batches of its own, some of them twice, until it is told that these were enough."""

    def __init__(self, url: str, number: int) -> None:
        super().__init__(daemon=True)
        self.client, self.number = Client(url, patience=120), number
        self.positions: dict[int, int] = {}
        """Position of each batch that was acknowledged."""
        self.enough = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            index = self.number
            while not self.enough.is_set() or len(self.positions) < BATCHES // SENDERS:
                for _ in range(2 if index % 5 == 0 else 1):
                    receipt = self.client.observe(*batch_of(index), batch_id=f"batch-{index}")
                    assert self.positions.setdefault(index, receipt["position"]) == receipt["position"]
                index += SENDERS
        except Exception as error:
            self.error = error


def test_a_server_that_is_killed_again_and_again_loses_nothing_and_learns_nothing_twice(tmp_path: Path) -> None:
    folder = some_learner(tmp_path / "served", 0, "er")
    untouched = some_learner(tmp_path / "untouched", 0, "er")
    dice = random.Random(KILLS)
    port, senders = 0, []
    for kill in range(KILLS):
        if kill % 3 == 2:  # in the middle of its start
            starting = start_engram("serve", str(folder), "--port", str(port), "--threads", "1")
            time.sleep(dice.uniform(0.5, 4.0))
            starting.kill()
            starting.communicate()
        with server(folder, "--checkpoint-every", "0.2", port=port) as (_, url):
            port = int(url.rpartition(":")[2])
            senders = senders or [Sender(url, number) for number in range(SENDERS)]
            for sender in senders:
                if kill == 0:
                    sender.start()
                assert sender.error is None, repr(sender.error)
            acknowledged = sum(len(sender.positions) for sender in senders)
            deadline = time.monotonic() + 60
            while sum(len(sender.positions) for sender in senders) == acknowledged and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(dice.uniform(0.0, 0.8))
    with server(folder, "--checkpoint-every", "0.2", port=port) as (process, url):
        for sender in senders:
            sender.enough.set()
        for sender in senders:
            sender.join(120)
            assert sender.error is None, repr(sender.error)
            assert not sender.is_alive()
        order = sorted((position, index) for sender in senders for index, position in sender.positions.items())
        assert [position for position, _ in order] == list(range(1, len(order) + 1))
        status = Client(url).wait(len(order))
        assert status["accepted"] == len(order) >= BATCHES
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    expected = undisturbed(untouched, [labeled(index) for _, index in order])
    assert fingerprint(Learner.load(folder)) == fingerprint(expected)


def test_a_real_server_refuses_what_is_too_large_or_without_token_and_still_answers(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(SECRET)
    (tmp_path / "token").chmod(0o600)
    options = ("--token-file", str(tmp_path / "token"), "--body-bytes", "1MiB", "--new", "er", "--width", "8")
    with server(tmp_path / "new", *options) as (process, url):
        client = Client(url, SECRET)
        position = client.observe(*batch_of(0))["position"]
        client.wait(position)
        with pytest.raises(ServerError, match="wrong") as refused:
            Client(url, "not-" + SECRET).observe(*batch_of(1))
        assert refused.value.status == 401
        request = urllib.request.Request(
            f"{url}/observe", bytes(10 << 20), {"Authorization": f"Bearer {SECRET}", "Content-Type": "application/json"}
        )
        with pytest.raises(urllib.error.HTTPError) as too_large:
            urllib.request.urlopen(request, timeout=30)
        assert too_large.value.code == 413
        too_large.value.close()
        assert client.status()["accepted"] == 1
        assert len(client.predict(batch_of(2)[0])) == 4
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=60)
        assert "Traceback" not in error
    assert Learner.load(tmp_path / "new").iteration == 1


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads resident memory from /proc")
def test_bad_requests_take_no_memory_and_change_nothing(tmp_path: Path) -> None:
    """Bodies beyond the limit, small archives that ask for gigabytes, and pictures with too many pixels."""
    bomb, huge = io.BytesIO(), io.BytesIO()
    np.savez_compressed(bomb, images=np.zeros((20, 3, 2048, 2048), np.uint8), labels=np.zeros(20, np.int64))
    Image.new("1", (30_000, 30_000)).save(huge, "PNG")
    pictures = json.dumps({"images": [base64.b64encode(huge.getvalue()).decode()], "labels": ["huge"]}).encode()
    bodies = [("application/octet-stream", bomb.getvalue()), ("application/json", pictures)]
    bodies.append(("application/octet-stream", bytes(10 << 20)))
    with server(tmp_path / "new", "--body-bytes", "1MiB", "--new", "er", "--width", "8") as (process, url):
        client = Client(url)
        client.wait(client.observe(*batch_of(0))["position"])
        before = peak_megabytes(process.pid)
        for kind, body in bodies * 20:
            request = urllib.request.Request(f"{url}/observe", body, {"Content-Type": kind})
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=30)
            assert 400 <= refused.value.code < 500
            refused.value.close()
        assert client.status()["accepted"] == 1
        assert peak_megabytes(process.pid) < before + 60


def peak_megabytes(pid: int) -> float:
    """Return the most memory that a process had resident so far."""
    (line,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(line) / 1024


def test_the_example_of_the_documentation_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    with server(tmp_path / "cups", "--new", "er", "--width", "8") as (_, url):
        exec(compile(example.replace("http://127.0.0.1:8080", url), PAGE.name, "exec"), {})
        assert Client(url).status()["learned"] == 1


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_lines_with_curl_in_the_documentation_run(tmp_path: Path) -> None:
    (block,) = re.findall(r"```\n(curl .*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    for color in ("red", "blue"):
        Image.new("RGB", (40, 30), color).save(tmp_path / f"{color}.png")
    Image.new("RGB", (32, 32), "red").save(tmp_path / "what.png")
    with server(tmp_path / "cups", "--new", "er", "--width", "8") as (_, url):
        answers = []
        for line in block.strip().replace("http://127.0.0.1:8080", url).splitlines():
            printed = subprocess.check_output([*shlex.split(line), "--silent", "--fail"], cwd=tmp_path, timeout=60)
            answers.append(json.loads(printed))
            if len(answers) == 1:
                Client(url).wait(answers[0]["position"])
    observed, predicted, status = answers
    assert (observed["id"], observed["position"], observed["duplicate"]) == ("first-batch", 1, False)
    assert {guess["label"] for guess in predicted["predictions"][0]["top"]} == {"red", "blue"}
    assert status["accepted"] == 1
