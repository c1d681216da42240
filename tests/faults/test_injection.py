"""What files say is shown as text: nothing in them reaches a terminal, a page or a spreadsheet as an order."""

import csv
import http.server
import io
import json
import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import chdir, suppress
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import yaml
from PIL import Image
from rich.table import Table

from engram import InputError, Learner
from engram.cli import main
from engram.cli.console import plain_console
from engram.experiment.config import RunConfig
from engram.experiment.run import run
from engram.persistence.checkpoint import read_checkpoint, write_checkpoint
from engram.persistence.parsing import safetensors_facts
from engram.report.page import page
from engram.streams import DATASETS
from tests.faults.soak import amount
from tests.helpers import feed, made_result, small_learner, start_engram, toy_images, toy_stream
from tests.streams.imagefiles import pack, tiny_files

EVIL = "\x1b]0;owned\x07\x9b31m\u202e'\"></script><script>alert(1)</script><img src=x onerror=alert(1)>"
ODD_VALUES = [EVIL, [EVIL], {EVIL: EVIL}, None, -1, 10**30, 1e308, float("nan"), float("inf"), True, [], {}, [[]], "1"]


class Tags(HTMLParser):
    """Collects what a browser would run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts, self.handlers, self.sources = 0, [], []  # type: ignore[var-annotated]
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.handlers += [name for name, _ in attributes if name.startswith("on")]
        self.sources += [value or "" for name, value in attributes if name in ("src", "href")]


def harmless(text: str) -> bool:
    tags = Tags(text)
    ours = all(source.startswith("data:") for source in tags.sources)
    return tags.scripts == 1 and not tags.handlers and ours and not set(text) & set("\x1b\x07\x9b\u202e")


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a tree of JSON."""
    yield path
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in entries:
        yield from places(value, (*path, key))


def with_value(node: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copied = dict(node) if isinstance(node, dict) else list(node)
    copied[path[0]] = with_value(copied[path[0]], path[1:], value)
    return copied


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    return captured.out + captured.err


def test_the_console_shows_controls_as_text_everywhere() -> None:
    out = io.StringIO()
    console = plain_console()
    console.file = out
    table = Table(f"head {EVIL}", caption=f"below {EVIL}")
    table.add_row(f"cell {EVIL}")
    console.print(table, soft_wrap=True)
    console.print(f"line {EVIL}", soft_wrap=True)
    text = out.getvalue()
    assert not set(text) & set("\x1b\x07\x9b\u202e")
    assert "line \\x1b]0;owned" in text


RESULT = json.loads(
    json.dumps(
        made_result(
            RunConfig("er", memory_size=5, average=0.9, tasks=2), 40.0, prequential={"accuracy": 3.0, "images": 5}
        ).to_dict()
    )
)
RESULT["readings"]["averaged"] = RESULT["readings"]["net"]
CELL = {"column": "c", "measure": "acc", "seeds": 2, "missing": 1, "mean": 1.5, "half_width": 0.1, "difference": 0.5,
        "difference_half_width": 0.1, "difference_seeds": 2, "paper": [30.0, 1.0]}  # fmt: skip
TABLE = {
    "name": "main", "title": "t", "scale": "small", "seeds": 2, "complete": False, "columns": ["c"],
    "rows": [{"row": "r", "cells": [CELL]}], "remarks": ["one"], "results": {"a": RESULT},
}  # fmt: skip


def test_every_field_of_a_result_and_a_table_is_only_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each field in turn, and many at once: a report or a refusal, both harmless; no other exception."""
    folder = tmp_path / "runs"
    (folder / "one").mkdir(parents=True)
    (folder / "table.md").touch()
    dice = random.Random(0)
    cases = [(RESULT, path) for path in places(RESULT)] + [
        (TABLE, path) for path in places(TABLE) if "results" not in path
    ]
    accepted = 0
    for number, (whole, path) in enumerate(cases * amount(1, 10)):
        content = with_value(whole, path, EVIL if number < len(cases) else dice.choice(ODD_VALUES))
        result, table = (content, TABLE) if whole is RESULT else (RESULT, content)
        (folder / "one" / "result.json").write_text(json.dumps(result))
        (folder / "table.json").write_text(json.dumps(table))
        try:
            text = page(folder)
        except InputError:
            pass
        else:
            accepted += 1
            assert harmless(text), path
        assert main(["compare", str(folder / "one")]) in (0, 1)
        assert not set(shown(capsys)) & set("\x1b\x07\x9b\u202e"), path
    assert accepted > 20


def test_evil_names_reach_the_page_as_text(tmp_path: Path) -> None:
    """A method of a plugin may have any name, and its settings too."""
    result = RESULT | {"config": RESULT["config"] | {"method": EVIL, "settings": {EVIL: {EVIL: EVIL}}, "dataset": EVIL}}
    (tmp_path / "result.json").write_text(json.dumps(result))
    (tmp_path / "events.jsonl").write_text(json.dumps({"event": "round", "batch": 1, EVIL: 3.0, "x": EVIL}))
    text = page(tmp_path)
    assert harmless(text)
    assert "&lt;script&gt;" in text


def test_evil_labels_and_class_names_are_shown_and_written_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    labels = [EVIL, "=cmd()", "+1", "-1", "@x", "\tx", "\ud800", "good"]
    learner = small_learner("er")
    learner.observe(toy_images([0] * 8, 0), labels)
    learner.save(tmp_path / "c")
    assert main(["memory", "show", str(tmp_path / "c")]) == 0
    text = shown(capsys)
    assert "good" in text
    assert not set(text) & set("\x1b\x07\x9b\u202e\ud800")
    assert main(["memory", "export", str(tmp_path / "c"), str(tmp_path / "m")]) == 0
    with (tmp_path / "m" / "labels.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    assert not any(row[name].startswith(("=", "+", "-", "@", "\t")) for row in rows for name in ("label", "name"))
    assert not any(set(cell) & set("\x1b\x07\x9b\u202e") for row in rows for cell in row.values())


def test_predictions_in_a_table_are_no_formulas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learner = small_learner("er")
    learner.observe(toy_images([0] * 4, 0).repeat(3, axis=1), [EVIL, "=cmd|' /C calc'!A0", "-2", "good"])
    learner.save(tmp_path / "c")
    image = tmp_path / "=HYPERLINK(1).png"
    Image.new("RGB", (16, 16)).save(image)
    capsys.readouterr()
    with chdir(tmp_path):
        assert main(["predict", "c", image.name, "--csv", "--top", "4"]) == 0
    rows = list(csv.DictReader(io.StringIO(shown(capsys))))
    assert len(rows) == 4
    assert not any(row[name].startswith(("=", "+", "-", "@")) for row in rows for name in ("image", "label"))
    assert not any(set(cell) & set("\x1b\x07\x9b\u202e") for row in rows for cell in row.values())


@pytest.mark.parametrize("kind", ["learner", "predictor"])
def test_every_field_of_a_checkpoint_is_only_shown(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    feed(small_learner("er"), toy_stream(1, 1)).save(tmp_path / "c", inference_only=kind == "predictor")
    whole, image = read_checkpoint(tmp_path / "c"), tmp_path / "x.png"
    Image.new("L", (16, 16)).save(image)
    cases = [path for path in places(whole) if path]
    for path in random.Random(0).sample(cases, min(len(cases), amount(100, 10_000))):
        with suppress(InputError):  # what cannot be saved is refused
            write_checkpoint(tmp_path / "c", with_value(whole, path, EVIL))
        for command in (
            ["memory", "show", str(tmp_path / "c")],
            ["predict", str(tmp_path / "c"), str(tmp_path / "x.png")],
        ):
            assert main(command) in (0, 1), path
        assert not (set(shown(capsys)) | set(caplog.text)) & set("\x1b\x07\x9b\u202e"), path


def test_every_fact_of_an_exported_memory_is_only_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learner = feed(small_learner("er", codec="webp"), toy_stream(1, 1))
    learner.save(tmp_path / "c")
    learner.export_memory().write(tmp_path / "m")
    file = tmp_path / "m" / "memory.safetensors"
    tensors, facts = safetensors.torch.load(file.read_bytes()), safetensors_facts(file.read_bytes())
    assert len(facts) == 4
    for name in facts:
        for value in (EVIL, json.dumps([EVIL]), json.dumps({EVIL: EVIL})):
            safetensors.torch.save_file(tensors, file, metadata=facts | {name: value})
            assert main(["memory", "import", str(tmp_path / "m"), str(tmp_path / "into"), "--steps", "0"]) in (0, 1)
            shutil.rmtree(tmp_path / "into", ignore_errors=True)
            assert not set(shown(capsys)) & set("\x1b\x07\x9b\u202e"), (name, value)


def test_what_a_checkpoint_says_is_logged_as_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    feed(small_learner("er"), toy_stream(1, 1)).save(tmp_path)
    tree = read_checkpoint(tmp_path)
    tree["environment"]["torch"] = EVIL
    write_checkpoint(tmp_path, tree)
    (tmp_path / "CURRENT").write_text(EVIL)
    Learner.load(tmp_path)
    assert "\\x1b" in caplog.text
    assert not set(caplog.text) & set("\x1b\x07\x9b\u202e")


def test_what_a_run_wrote_beside_its_result_is_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each of its other files in turn, and each field of them: a report or a refusal."""
    run(RunConfig("er", tasks=1, images_per_class=10, memory_size=4, settings={"net": {"width": 8}}), tmp_path)
    capsys.readouterr()
    accepted = 0
    for name in ("env.json", "classes.json", "events.jsonl", "config.yaml"):
        file = tmp_path / name
        before = file.read_text()
        lines = name == "events.jsonl"
        whole = [json.loads(line) for line in before.splitlines()] if lines else yaml.safe_load(before)
        for path in places(whole):
            content = with_value(whole, path, EVIL)
            file.write_text("\n".join(map(json.dumps, content if lines and path else [content])))
            with suppress(InputError):
                assert harmless(page(tmp_path)), (name, path)
                accepted += 1
            if name == "classes.json":
                main(["memory", "show", str(tmp_path)])
                assert not set(shown(capsys)) & set("\x1b\x07\x9b\u202e"), path
        file.write_text(before)
    assert accepted > 20


def test_names_in_an_archive_and_in_the_cache_are_text(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = EVIL.replace("/", "_")
    files = tiny_files(train=2)
    for number, more in enumerate(
        (
            {f"train/n00001000/images/{name}.JPEG": b"broken", f"{name}.txt": b"", f".{name}": b""},
            {f"../{name}": b""},
            {f"train/{name}/images/0.JPEG": b""},
            {"words.txt": f"n00001000\t{name}".encode()},
        )
    ):
        monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / str(number)))
        monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / str(number)))
        pack(tmp_path / str(number) / "tiny-imagenet-200.zip", files | more)
        for options in ([], ["--skip-damaged"]):
            main(["data", "check", "tiny-imagenet", *options])
            text = shown(capsys)
            assert not set(text) & set("\x1b\x07\x9b\u202e")
            assert "\\x1b]0;owned" in text or (options and number == 0), "said, but as text"
    assert not set(caplog.text) & set("\x1b\x07\x9b\u202e"), "what programs that use engram log"
    for facts in (tmp_path / "3").glob("decoded/*/facts.json"):
        honest = json.loads(facts.read_text())
        for path in places(honest):
            facts.write_text(json.dumps(with_value(honest, path, EVIL)))
            for arguments in (["data", "cache"], ["data", "check", "tiny-imagenet"]):
                assert main(arguments) == 0
                assert not set(shown(capsys)) & set("\x1b\x07\x9b\u202e"), path


def test_what_a_server_says_is_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(f"HTTP/1.0 418 {EVIL}\r\nX: {EVIL}\r\n\r\n".encode())

        def log_message(self, *arguments: object) -> None:
            pass

    monkeypatch.setattr("engram.streams.transfer.SCHEMES", ("http",))
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        known = DATASETS["cifar10"]
        assert known.download is not None
        download = replace(known.download, url=f"http://127.0.0.1:{server.server_port}/x")
        monkeypatch.setitem(DATASETS, "cifar10", replace(known, download=download))
        assert main(["data", "get", "cifar10"]) == 1
        server.shutdown()
    text = shown(capsys)
    assert "HTTP status 418 ('\\x1b]0;owned" in text
    assert not set(text) & set("\x1b\x07\x9b\u202e")


def test_messages_about_arguments_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["compare", f"/nowhere/{EVIL}"], ["run", "--seed", EVIL], [EVIL], ["methods", f"--{EVIL}"]):
        with suppress(SystemExit):
            main(arguments)
        text = shown(capsys)
        assert text
        assert not set(text) & set("\x1b\x07\x9b\u202e")


def test_names_in_a_data_set_do_not_reach_the_terminal_as_orders(tmp_path: Path) -> None:
    """A damaged image is named in a warning; its name has an escape that would clear the screen."""
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            folder = tmp_path / "photos" / split / name
            folder.mkdir(parents=True)
            for index in range(3):
                Image.new("RGB", (16, 16), (index, 0, 0)).save(folder / f"{index}.png")
    (tmp_path / "photos" / "train" / "cat" / "a\x1b[2J.png").write_bytes(b"no image")
    process = start_engram("data", "check", str(tmp_path / "photos"), "--skip-damaged", cwd=tmp_path)
    shown, warned = process.communicate(timeout=120)
    assert "\x1b[2J" not in shown + warned
    assert "\\x1b[2J.png" in shown + warned
