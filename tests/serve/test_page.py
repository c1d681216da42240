"""The page: it asks nobody else for anything, and in a browser it teaches, asks and outlives a kill."""

import base64
import hashlib
import io
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engram.serve.page import page, page_policy
from tests.helpers import toy_images
from tests.serve.serving import SECRET, server, some_learner

PICTURES = Path(os.environ["ENGRAM_PICTURES"]) if "ENGRAM_PICTURES" in os.environ else None
"""Where pictures of the page are kept, for the documentation."""
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def test_the_page_refers_to_nothing_outside() -> None:
    text = page()
    assert not re.findall(r"(?:https?:)?//[a-z0-9]", re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    assert not re.findall(r"<(?:link|script|img|iframe)[^>]+(?:src|href)=\"(?!data:)", text)
    assert "@import" not in text
    assert "url(" not in text


def test_the_policy_lets_the_browser_run_this_script_and_style_only() -> None:
    policy = dict(part.strip().split(" ", 1) for part in page_policy().split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    for kind in ("script", "style"):
        (inline,) = re.findall(rf"<{kind}>(.*?)</{kind}>", page(), re.DOTALL)
        expected = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert policy[f"{kind}-src"] == f"'sha256-{expected}'"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    pytest.importorskip("fastapi")
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium here: install Debian's chromium to look at the page")
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    arguments += ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield chromium
        chromium.close()


def files(kind: int, seed: int, count: int = 4) -> list[dict[str, Any]]:
    """Pictures of a class, as a user would choose them."""
    found = []
    for index, image in enumerate(toy_images([kind] * count, seed)):
        written = io.BytesIO()
        Image.fromarray(np.kron(image[0], np.ones((2, 2), np.uint8))).save(written, "PNG")
        found.append({"name": f"{kind}-{index}.png", "mimeType": "image/png", "buffer": written.getvalue()})
    return found


def teach(view: Any, name: str, shown: list[dict[str, Any]]) -> None:
    view.click("#clear")
    view.set_input_files("#files", shown)
    view.wait_for_selector(f"#shown li:nth-child({len(shown)})")
    view.wait_for_selector("#learn:enabled")
    view.fill("#name", name)
    view.press("#name", "Enter")
    view.wait_for_selector("#said:has-text('Learned batch')", timeout=30_000)
    view.wait_for_selector("#learn:enabled")


def quiet_page(browser: Any, url: str, said: list[str]) -> Any:
    """Open the page on a phone; what it says to the console or asks of others is noted."""
    view = browser.new_page(viewport={"width": 390, "height": 800})
    view.on("pageerror", lambda error: said.append(str(error)))
    view.on("console", lambda message: said.append(message.text) if "Failed to load" not in message.text else None)
    view.on(
        "request", lambda asked: said.append(asked.url) if not asked.url.startswith((url, "data:", "blob:")) else None
    )
    view.goto(url)
    return view


def test_images_may_be_dropped_or_taken_with_the_camera(tmp_path: Path, browser: Any) -> None:
    said: list[str] = []
    with server(tmp_path / "new", "--new", "er", "--total-bytes", "4MB", "--width", "8") as (_, url):
        view = quiet_page(browser, url, said)
        (shown,) = files(0, 5, 1)
        encoded = base64.b64encode(shown["buffer"]).decode()
        view.evaluate(
            """encoded => {
                const bytes = Uint8Array.from(atob(encoded), each => each.charCodeAt(0)), data = new DataTransfer();
                data.items.add(new File([bytes], "dropped.png", {type: "image/png"}));
                const event = new DragEvent("drop", {dataTransfer: data, bubbles: true});
                document.getElementById("drop").dispatchEvent(event);
            }""",
            encoded,
        )
        view.wait_for_selector("#shown li:nth-child(1)")
        view.click("#camera")
        view.wait_for_selector("#viewer:visible")
        while not view.evaluate("document.getElementById('video').videoWidth"):
            time.sleep(0.05)
        view.click("#snap")
        view.wait_for_selector("#shown li:nth-child(2)")
        view.fill("#name", "thing")
        view.press("#name", "Enter")
        view.wait_for_selector("#said:has-text('Learned batch 1')", timeout=30_000)
        assert re.fullmatch(r"Of 4\.0 MB for everything, \d+ (KB|B) are used\.", view.inner_text("#budget"))
        assert view.locator("#parts tr").count() > 2
        view.close()
    assert said == []


def test_in_a_browser_two_classes_are_taught_asked_and_outlive_a_kill(tmp_path: Path, browser: Any) -> None:
    token = tmp_path / "token"
    token.write_text(SECRET)
    token.chmod(0o600)
    options = ("--token-file", str(token), "--side", "16")
    folder = some_learner(tmp_path / "toy")
    said: list[str] = []
    with server(folder, *options) as (_, url):
        view = quiet_page(browser, url, said)
        view.fill("#token", SECRET)
        view.press("#token", "Enter")
        view.wait_for_selector("#state:has-text('0 batches learned')")
        for turn in range(2):
            for kind, name in enumerate(("cup", "<b>pen</b>")):
                teach(view, name, files(kind, 10 * turn + kind))
        assert view.locator("#memory img").count() == 8
        assert "<b>pen</b>" in view.locator("#memory li").all_inner_texts(), "names are shown as text"
        assert "The memory holds 8 of 8 images" in view.inner_text("#budget")
        assert "Of what was just shown, 4 of 4 are recognized (100 %)" in view.inner_text("#said")
        for width, scheme in ((390, "light"), (1280, "dark")):
            view.set_viewport_size({"width": width, "height": 800})
            view.emulate_media(color_scheme=scheme)
            view.screenshot(
                path=str(PICTURES / f"serve-{scheme}.png" if PICTURES else tmp_path / "p.png"), full_page=True
            )
            assert view.evaluate("document.documentElement.scrollWidth") <= width
            ground = view.evaluate("getComputedStyle(document.body).backgroundColor")
            assert ground == {"light": "rgb(246, 246, 243)", "dark": "rgb(22, 24, 27)"}[scheme]
    with server(folder, *options, port=int(url.rpartition(":")[2])):
        view.reload()
        view.wait_for_selector("#state:has-text('4 batches learned, 2 classes')", timeout=30_000)
        view.set_input_files("#files", files(1, 99, 1))
        view.wait_for_selector("#shown .guess")
        view.wait_for_selector("#ask:enabled")
        view.focus("#ask")
        view.keyboard.press("Enter")
        view.wait_for_selector("#ask:enabled")
        assert view.locator("#shown .guess span:first-child").all_inner_texts() == ["<b>pen</b>", "cup"]
        assert re.fullmatch(r"score -?\d\.\d{3}", view.locator("#shown .guess .faint").first.inner_text())
        with view.expect_download() as loading:
            view.click("#download")
        assert Path(loading.value.path()).read_bytes()[:2] == b"PK"
        view.close()
    assert said == []
