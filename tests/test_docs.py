"""What README and docs say was measured is what results/ holds."""

import re
from pathlib import Path

import generate
import pytest

ROOT = Path(__file__).parents[1]

BY_HAND = {
    "README.md": {"3.11"},
    "docs/results.md": {"9.0", "10.7", "12.1", "3.3", "0.4", "1.3"},
    "docs/performance.md": set(),
}
"""Numbers with a decimal point that are no measurement of ours: settings, versions, chance, the paper's figures, and
the range of pixel values in a picture."""


@pytest.mark.parametrize("path", generate.documents(), ids=lambda path: path.name)
def test_documents_say_what_the_results_say(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert generate.filled(text) == text, "run make docs-results"


@pytest.mark.parametrize("name", BY_HAND)
def test_no_measured_figure_is_written_by_hand(name: str) -> None:
    text = generate.MARK.sub("", (ROOT / name).read_text(encoding="utf-8"))
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", text, flags=re.DOTALL)
    found = set(re.findall(r"\d+\.\d+", text))
    assert found <= BY_HAND[name], f"mark these as values: {sorted(found - BY_HAND[name])}"


def test_every_committed_result_stands_in_a_document() -> None:
    used = (ROOT / "docs" / "measured.py").read_text()
    assert [path.stem for path in (ROOT / "results").glob("*.json") if f'"{path.stem}"' not in used] == []


def test_a_changed_result_is_noticed() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert generate.filled(text.replace("**12.9**", "**13.9**")) == text != text.replace("**12.9**", "**13.9**")
