"""The documentation site is built without a warning, and every link and picture in it is there."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from engram.cli import COMMANDS
from engram.methods import METHODS

ROOT = Path(__file__).parents[1]


class Addresses(HTMLParser):
    """What a page links to and shows, and the places in it that links may name."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.append(unquote(value))
            if name in ("id", "name") and value:
                self.places.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    built = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return out


def test_pages_list_every_command_and_every_method(site: Path) -> None:
    commands, methods = ((site / f"{name}.html").read_text(encoding="utf-8") for name in ("commands", "methods"))
    assert [name for name in COMMANDS if f"usage: engram {name}" not in commands] == []
    assert "usage: engram memory export" in commands
    assert [name for name in METHODS if f"<code>{name}</code>" not in methods] == []


def test_links_within_the_site_lead_somewhere(site: Path) -> None:
    pages = {page: Addresses(page) for page in sorted(site.rglob("*.html")) if page.name != "404.html"}
    assert {"index.html", "tutorial.html", "api.html", "results.html"} <= {page.name for page in pages}
    broken = []
    for page, found in pages.items():
        for link in found.links:
            name, _, place = link.partition("#")
            if ":" in name or name.startswith("//"):
                continue
            target = (page.parent / name).resolve() if name else page
            known = pages.get(target)
            if not target.exists() or (place and known and place not in known.places and place != "__skip"):
                broken.append((page.name, link))
    assert broken == []


def test_the_reference_shows_what_docstrings_say(site: Path) -> None:
    found = Addresses(site / "api.html").places
    assert {"engram.Learner.learn", "engram.Learner.export", "engram.sklearn.EngramClassifier"} <= found
    assert {"engram.avalanche.summary_replay", "engram.serve.Client.predict"} <= found
