"""What README and docs say was measured is what results/ holds."""

import re
from pathlib import Path

import generate
import pytest

ROOT = Path(__file__).parents[1]

BY_HAND = {
    "README.md": {"3.11", "150 KiB"},
    "architecture.md": {"2.13"},
    "method.md": {"6.4", "0.9", "0.01", "0.07", "0.1", "46.7", "95 %"},
    "paper.md": {"95 %"},
    "performance.md": {"60 s"},
    "photos.md": {"200 kB"},
    "results.md": {
        "9.0",
        "10.7",
        "12.1",
        "5.8",
        "0.2",
        "3.3",
        "0.4",
        "1.3",
        "95 %",
        "150 KiB",
        "153,600 bytes",
        "5 %",
        "10 %",
    },
}
"""Numbers with a decimal point or a unit that are no measurement of ours: settings, versions, chance, the paper's
figures, and the range of pixel values in a picture."""
MEASURED = re.compile(r"\d[\d,]*\.\d+|\d[\d,]* (?:s|ms|kB|KB|MB|KiB|bytes|dB|%)(?!\w)")


@pytest.mark.parametrize("path", generate.documents(), ids=lambda path: path.name)
def test_documents_say_what_the_results_say(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert generate.filled(text) == text, "run make docs-results"


@pytest.mark.parametrize("path", generate.documents(), ids=lambda path: path.name)
def test_no_measured_figure_is_written_by_hand(path: Path) -> None:
    text = generate.MARK.sub("", path.read_text(encoding="utf-8"))
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", text, flags=re.DOTALL)
    found = set(MEASURED.findall(text)) - BY_HAND.get(path.name, set())
    assert not found, f"mark these as values: {sorted(found)}"


def test_every_committed_result_stands_in_a_document() -> None:
    used = (ROOT / "docs" / "measured.py").read_text().replace("'", '"')
    assert [path.stem for path in (ROOT / "results").glob("*.json") if f'"{path.stem}"' not in used] == []
    text = "".join(path.read_text(encoding="utf-8") for path in generate.documents())
    marked = {(match[1], match[2]) for match in generate.MARK.finditer(text)}
    offered = {("table", name) for name in generate.TABLES} | {("value", name) for name in generate.VALUES}
    assert marked == offered


def test_a_changed_result_is_noticed() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert generate.filled(text.replace("**12.9**", "**13.9**")) == text != text.replace("**12.9**", "**13.9**")
