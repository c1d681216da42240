"""Downloads from a server on this machine: whole, cut off and resumed, wrong, refused, on a full disk."""

import hashlib
import http.server
import io
import os
import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from engram.streams import DataError, transfer
from engram.streams import download as module
from engram.streams.download import download

CONTENT = bytes(range(256)) * 4096
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server:
    """Serves CONTENT; `cut` bytes a request at most, then the connection drops."""

    def __init__(self) -> None:
        self.cut: list[int | None] = []
        self.ranges: list[str | None] = []
        self.resumes = True
        self.moved = ""
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = self.headers.get("Range")
                server.ranges.append(asked)
                if self.path == "/moved":
                    self.send_response(302)
                    self.send_header("Location", server.moved)
                    self.end_headers()
                    return
                if self.path != "/file":
                    self.send_error(404)
                    return
                start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and server.resumes else 0
                self.send_response(206 if asked and server.resumes else 200)
                self.send_header("Content-Length", str(len(CONTENT) - start))
                self.end_headers()
                cut = server.cut.pop(0) if server.cut else None
                self.wfile.write(CONTENT[start:] if cut is None else CONTENT[start : start + cut])

            def log_message(self, *arguments: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/file"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(module, "PAUSE", 0.0)
    monkeypatch.setattr(transfer, "SCHEMES", ("http", "https"))
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()


def test_a_whole_file_arrives_with_progress(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    download(server.url, tmp_path / "new" / "file", MD5, len(CONTENT), lambda *progress: seen.append(progress))
    assert (tmp_path / "new" / "file").read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


def test_a_dropped_connection_is_resumed(server: Server, tmp_path: Path) -> None:
    server.cut = [300_000, 200_000]
    download(server.url, tmp_path / "file", MD5, len(CONTENT))
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=300000-", "bytes=500000-"]


def test_a_download_given_up_goes_on_in_the_next_call(server: Server, tmp_path: Path) -> None:
    server.cut = [1000, 1000, 1000]
    with pytest.raises(DataError, match=r"broke off 3 times.*resume"):
        download(server.url, tmp_path / "file", MD5, len(CONTENT))
    assert not (tmp_path / "file").exists()
    assert (tmp_path / "file.part").stat().st_size == 3000
    download(server.url, tmp_path / "file", MD5, len(CONTENT))
    assert server.ranges[-1] == "bytes=3000-"
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_server_that_cannot_resume_sends_all_again(server: Server, tmp_path: Path) -> None:
    server.resumes = False
    (tmp_path / "file.part").write_bytes(b"something else")
    download(server.url, tmp_path / "file", MD5, len(CONTENT))
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_wrong_file_is_removed(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"whose md5 is .*it was removed"):
        download(server.url, tmp_path / "file", "0" * 32, len(CONTENT))
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_and_a_closed_network_are_said(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="HTTP status 404"):
        download(server.url + "-not", tmp_path / "file", MD5, len(CONTENT))
    server.http.shutdown()
    server.http.server_close()
    with pytest.raises(DataError, match="cannot be reached"):
        download(server.url, tmp_path / "file", MD5, len(CONTENT))


def test_a_disk_that_fills_up_keeps_what_arrived(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "BLOCK", 100_000)

    class SmallDisk(io.FileIO):
        def write(self, content: Any) -> int:
            fits = max(0, 200_000 - self.tell())
            super().write(content[:fits])
            if fits < len(content):
                raise OSError(28, "No space left on device")
            return len(content)

    with monkeypatch.context() as small:
        small.setattr(module, "_open_part", lambda path, append: SmallDisk(os.fspath(path), "ab" if append else "wb"))
        with pytest.raises(DataError, match=r"is full, 1 MB are needed.*resume"):
            download(server.url, tmp_path / "file", MD5, len(CONTENT))
    assert (tmp_path / "file.part").stat().st_size == 200_000
    download(server.url, tmp_path / "file", MD5, len(CONTENT))
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.ranges[-1] == "bytes=200000-"


def serve_slowly(monkeypatch: pytest.MonkeyPatch, slow: str) -> tuple[str, threading.Event]:
    """A server whose headers or body arrive one byte after the other, without end."""
    listening = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n"

    def serve() -> None:
        with suppress(OSError):
            while not done.is_set():
                connection, _ = listening.accept()
                connection.recv(4096)
                connection.sendall(answer + (b"X: " if slow == "headers" else b"\r\n"))
                while not done.wait(0.02):
                    connection.sendall(b"x")

    threading.Thread(target=serve, daemon=True).start()
    monkeypatch.setattr(transfer, "TIMEOUT", 0.4)
    return f"http://127.0.0.1:{listening.getsockname()[1]}/file", done


@pytest.mark.parametrize("slow", ["headers", "body"])
def test_a_server_that_sends_a_byte_at_a_time_is_given_up(
    slow: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, done = serve_slowly(monkeypatch, slow)
    monkeypatch.setattr(module, "ATTEMPTS", 1)
    began = time.monotonic()
    with pytest.raises(DataError, match="broke off"):
        download(url, tmp_path / "file", MD5, len(CONTENT))
    done.set()
    assert time.monotonic() - began < 3


def test_a_server_that_was_fast_must_stay_so(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """What arrived quickly does not pay for a stop later."""
    monkeypatch.setattr(transfer, "TIMEOUT", 0.2)
    slow = transfer.Transfer.__new__(transfer.Transfer)
    slow.status, slow.arrived, slow.ended = 200, queue.Queue(), threading.Event()
    slow.arrived.put(bytes(1_000_000))
    began = time.monotonic()
    with pytest.raises(transfer.BrokenOff):
        list(slow.blocks(2_000_000))
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("to", ["http://127.0.0.1:{port}/file", "ftp://127.0.0.1/file"])
def test_a_redirection_to_another_scheme_is_refused(
    to: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server stands for one with https: its own address is let through, the one it redirects to is not."""
    allowed = server.url.replace("/file", "/moved")
    server.moved = to.format(port=server.http.server_port)
    require = transfer._require_scheme
    monkeypatch.setattr(transfer, "SCHEMES", ("https",))
    monkeypatch.setattr(transfer, "_require_scheme", lambda url: None if url == allowed else require(url))
    with pytest.raises(DataError, match="is not an address with https"):
        download(allowed, tmp_path / "file", MD5, len(CONTENT))
    assert server.ranges == [None]
    assert not (tmp_path / "file").exists()


def test_an_address_without_https_is_refused(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "SCHEMES", ("https",))
    with pytest.raises(DataError, match="is not an address with https"):
        download(server.url, tmp_path / "file", MD5, len(CONTENT))
    assert server.ranges == []


@pytest.mark.parametrize("kind", ["symbolic", "hard", "fifo"])
def test_nothing_is_written_through_a_link(kind: str, server: Server, tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"keep me")
    part = tmp_path / "file.part"
    if kind == "fifo":
        os.mkfifo(part)
    elif kind == "hard":
        part.hardlink_to(tmp_path / "precious")
    else:
        part.symlink_to(tmp_path / "precious")
    with pytest.raises(DataError, match=r"file.part is a link or not a file.*remove it"):
        download(server.url, tmp_path / "file", MD5, len(CONTENT))
    assert (tmp_path / "precious").read_bytes() == b"keep me"


def test_a_link_made_at_the_last_moment_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"keep me")
    (tmp_path / "file.part").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic"):
        module._open_part(tmp_path / "file.part", append=False)
    assert (tmp_path / "precious").read_bytes() == b"keep me"
